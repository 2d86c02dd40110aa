"""One round of clustered federated learning, in seven steps.

`play_round` is the whole round: broadcast, identify, associate, allocate, train, aggregate,
account. It takes a `State` and returns the next one with a record of what happened; all randomness
comes from generators derived from the seed, the user and the round, so that a round can be
repeated from its state alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from covey.allocation import Plan, noise_levels
from covey.association import Observation, Policy, validated_selection
from covey.learning import (
    Evaluation,
    Steps,
    admit,
    aggregate_models,
    reach,
)
from covey.privacy import release_rho
from covey.radio import broadcast_times, distances
from covey.seeding import generator
from covey.simulation.account import account
from covey.simulation.identification import identify, identities_from_releases
from covey.simulation.masking import aggregate_masked, broadcasting, totals_of, without_small_tasks
from covey.simulation.record import RoundRecord
from covey.simulation.stages import Aggregation, Decision, Identification, Uploads
from covey.simulation.state import State
from covey.simulation.world import World


def play_round(world: World, state: State, policy: Policy) -> tuple[State, RoundRecord]:
    """The next state and the record of the round that led to it."""
    broadcast_s = broadcast(world, state)
    identification = identify(world, state)
    observation, selected = associate(world, state, identification.identities, policy)
    decision = allocate(world, state, identification, observation, selected)
    uploads = train(world, state, identification.identities, decision)
    decision = settle(world, identification, decision, uploads)
    aggregation = aggregate(world, state, identification.identities, decision, uploads)
    evaluation = evaluate(world, state, aggregation.models, identification.identities)
    record = account(
        world, state, observation, selected, broadcast_s, identification, decision, uploads, aggregation, evaluation
    )
    return advance(world, state, identification, decision, uploads, aggregation), record


def broadcast(world: World, state: State) -> NDArray[np.float64]:
    """Stations send the models that changed; (B,) seconds of air time, Eq. (10).

    A model changes only where somebody uploaded, so after this every user's copies equal the
    global models (errata E26).
    """
    world.fleet.publish(state.models, state.movements)
    radio = world.scenario.radio
    return broadcast_times(state.active, world.model_bits, radio.downlink_rate_bps)


def associate(
    world: World, state: State, identities: NDArray[np.int64], policy: Policy
) -> tuple[Observation, NDArray[np.bool_]]:
    """Each station chooses users, (B, U) bool, from what it can see."""
    observation = observe(world, state, identities)
    answer = policy(observation, generator(world.seed, "policy", round=state.round))
    selected = validated_selection(answer, world.users, world.scenario.network.stations)
    return observation, selected & observation.available


def observe(world: World, state: State, identities: NDArray[np.int64]) -> Observation:
    """What the stations know when they choose; stations that are kept blind see all users as of one task."""
    capable, kept = world.capable, (identities == state.identities) & (state.round > 0)
    if world.blind:
        identities, capable = np.zeros_like(identities), np.ones((len(capable), 1), dtype=bool)
        kept = np.zeros_like(kept)
    return Observation(
        round=state.round,
        identities=identities,
        distances_m=distances(state.positions_m, world.stations_m),
        gains=world.channel.gains(state.positions_m, world.stations_m, state.round),
        samples=world.samples,
        capable=capable,
        blocks=world.scenario.network.blocks,
        downlink_slots=len(capable) if world.blind else world.slots,
        power_w=world.power_w,
        noise_w=world.noise_w,
        min_sinr=world.min_sinr,
        available=~state.exhausted,
        kept=kept,
    )


def allocate(
    world: World,
    state: State,
    identification: Identification,
    observation: Observation,
    selected: NDArray[np.bool_],
) -> Decision:
    """Blocks by iterated safe matching, noise in closed form, and the charge of every release.

    A user whose budget cannot pay its release is taken out before anything is sent, and the noise
    of its task is computed again for the others.
    """
    plan = observation.project(selected)
    ledger = identification.ledger.copy()
    privacy = world.scenario.privacy
    refused: list[NDArray[np.int64]] = []
    while True:
        served = np.flatnonzero(plan.station >= 0)
        noise_std, infeasible = _noise(world, observation.identities, plan)
        rho = release_rho(world.clip[served], noise_std[served], privacy.adjacency)
        paid = ledger.affordable(served, rho)
        if paid.all():
            ledger.charge(served, rho)
            world.journal.record(state.round, "gradient", served, rho)
            break
        refused.append(served[~paid])
        ledger.refuse(served[~paid])
        plan = _without(plan, served[~paid], observation.identities)
    none = np.zeros(0, dtype=np.int64)
    return Decision(plan, noise_std, infeasible, ledger, np.concatenate([none, *refused]))


def _without(plan: Plan, users: NDArray[np.int64], identities: NDArray[np.int64]) -> Plan:
    """The plan with these users taken out, and the broadcasts that only they needed."""
    station, block = plan.station.copy(), plan.block.copy()
    station[users] = block[users] = -1
    active = np.zeros_like(plan.active)
    active[station[station >= 0], identities[station >= 0]] = True
    return replace(plan, station=station, block=block, active=active)


def _noise(world: World, identities: NDArray[np.int64], plan: Plan) -> tuple[NDArray[np.float64], int]:
    privacy = world.scenario.privacy
    if privacy.noise == "off":
        return np.zeros(world.users), 0
    task = np.where(plan.station >= 0, identities, -1)
    levels = noise_levels(world.samples, task, privacy.v_max, privacy.n_min, tasks=world.tasks)
    return levels.std, int((~levels.feasible).sum())


def train(world: World, state: State, identities: NDArray[np.int64], decision: Decision) -> Uploads:
    """Served users clip, add noise, step and upload, Eqs. (5) and (6) with errata E5, E10 and E12.

    What arrives is checked; what is lost or turned away stays charged, for it has left the device.
    """
    users = np.flatnonzero(decision.plan.station >= 0)
    training = world.scenario.training
    steps = Steps(
        users, identities[users], world.clip[users], decision.noise_std[users], training.learning_rate, training.batch,
        world.samples[users], stations=decision.plan.station[users], blocks=decision.plan.block[users],
    )  # fmt: skip
    result = world.fleet.release(state.round, steps)
    counted = np.minimum(world.samples[users], training.batch or world.samples[users])
    intake = admit(
        world.transport(state.round, result.uploads),
        state.round,
        users,
        state.models,
        identities[users],
        reach(world.clip[users], counted, decision.noise_std[users], training.learning_rate, world.weights),
        sealed=world.masked,
    )
    return Uploads(intake, result.mean_norm, result.clipped_fraction, result.refused)


def settle(world: World, identification: Identification, decision: Decision, uploads: Uploads) -> Decision:
    """The decision with the ledger that users' own books and refusals lead to; the same where users have none.

    Nothing left a user that refused, so that its charge is taken back; it sits out from then on. Where a
    user's own total is larger than the run's, it counts.
    """
    spent, refused = world.fleet.spent(), uploads.refused
    if spent is None and len(refused) == 0 and not world.fleet.tells:
        return decision
    before, ledger = identification.ledger, decision.ledger.copy()
    ledger.spent["gradient"][refused] = before.spent["gradient"][refused]
    ledger.releases[refused] = before.releases[refused]
    ledger.refuse(refused)
    if world.fleet.tells:
        ledger.label_measured(np.arange(world.users))
    if spent is not None:
        ledger = ledger.raise_to(spent)
    return replace(decision, ledger=ledger, refused=np.concatenate([decision.refused, refused]))


def aggregate(
    world: World,
    state: State,
    identities: NDArray[np.int64],
    decision: Decision,
    uploads: Uploads,
) -> Aggregation:
    """New global models: mean at each station (7), then over stations (8) with errata E9; or masked sums over all."""
    if world.masked:
        return aggregate_masked(world, state, identities, decision, uploads.intake)
    intake = uploads.intake
    if world.blind:
        intake = without_small_tasks(world, identities, intake)
    users = intake.users[intake.accepted]
    models = aggregate_models(
        intake.weights[intake.accepted],
        identities[users],
        decision.plan.station[users],
        world.samples[users],
        state.models,
        world.scenario.network.stations,
    )
    joined = np.zeros(world.users, dtype=bool)
    joined[users] = True
    closed = len(np.unique(identities[uploads.intake.users[uploads.intake.accepted]])) - len(
        np.unique(identities[users])
    )
    return Aggregation(models, totals_of(world, identities, users), joined, closed_tasks=closed)


def evaluate(world: World, state: State, models: NDArray[np.float32], identities: NDArray[np.int64]) -> Evaluation:
    """Every user's loss and accuracy on its task's new model (errata E7)."""
    world.fleet.publish(models, state.movements)
    return world.fleet.evaluate(identities)


def advance(
    world: World,
    state: State,
    identification: Identification,
    decision: Decision,
    uploads: Uploads,
    aggregation: Aggregation,
) -> State:
    """The state of the next round: users have moved, changed models have a new movement (2)."""
    models = aggregation.models
    moved = models - state.models
    changed = np.any(moved != 0, axis=1)
    positions, memory = world.mobility.move(
        state.positions_m,
        state.mobility_memory,
        world.scenario.mobility.round_s,
        generator(world.seed, "mobility", round=state.round + 1),
    )
    exhausted = state.exhausted.copy()
    exhausted[decision.refused] = True
    identities = identification.identities
    if world.scenario.privacy.identity == "from_release":
        identities = identities_from_releases(world, state, identities, uploads.intake, aggregation)
    return State(
        round=state.round + 1,
        positions_m=positions,
        mobility_memory=memory,
        models=models,
        movements=np.where(changed[:, None], moved, state.movements),
        active=broadcasting(world, changed) if world.blind else decision.plan.active,
        identities=identities,
        served_rounds=state.served_rounds + (decision.plan.station >= 0),
        exhausted=exhausted,
        ledger=decision.ledger,
    )
