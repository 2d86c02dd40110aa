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

from covey.allocation import Plan, noise_levels, project
from covey.association import Observation, Policy, validated_selection
from covey.learning import (
    Evaluation,
    aggregate_models,
    identities_from_scores,
    kmeans_identities,
    random_identities,
    screen,
)
from covey.privacy import release_rho
from covey.radio import broadcast_times, distances
from covey.seeding import generator
from covey.simulation.account import account
from covey.simulation.record import RoundRecord
from covey.simulation.stages import Decision, Identification, Uploads
from covey.simulation.state import State
from covey.simulation.world import World


def play_round(world: World, state: State, policy: Policy) -> tuple[State, RoundRecord]:
    """The next state and the record of the round that led to it."""
    broadcast_s = broadcast(world, state)
    identification = identify(world, state)
    observation, selected = associate(world, state, identification.identities, policy)
    decision = allocate(world, state, identification, observation, selected)
    uploads = train(world, state, identification.identities, decision)
    models = aggregate(world, state, identification.identities, decision, uploads)
    evaluation = evaluate(world, state, models, identification.identities)
    record = account(world, state, observation, selected, broadcast_s, identification, decision, uploads, evaluation)
    return advance(world, state, models, identification, decision), record


def broadcast(world: World, state: State) -> NDArray[np.float64]:
    """Stations send the models that changed; (B,) seconds of air time, Eq. (10).

    A model changes only where somebody uploaded, so after this every user's copies equal the
    global models (errata E26).
    """
    world.engine.publish(state.models, state.movements)
    radio = world.scenario.radio
    return broadcast_times(state.active, world.model_bits, radio.downlink_rate_bps)


def identify(world: World, state: State) -> Identification:
    """Each user works out its task, Eqs. (1) to (4) with errata E1, E2 and E4."""
    clustering = world.scenario.clustering
    nobody = np.zeros(0, dtype=np.int64)
    if clustering.rule == "oracle":
        return Identification(world.groups.copy(), state.ledger, nobody, nobody)
    if state.round == 0:
        rng = generator(world.seed, "identity")
        return Identification(random_identities(world.users, world.tasks, rng), state.ledger, nobody, nobody)
    if clustering.rule == "kmeans":
        return _identify_centrally(world, state)
    gradients = clustering.rule != "loss" and clustering.similarity_weight > 0
    losses, similarity = world.engine.score(state.round, batch=clustering.batch, gradients=gradients)
    identities = identities_from_scores(losses, similarity, clustering.similarity_weight, clustering.rule)
    return Identification(identities, state.ledger, nobody, nobody)


def _identify_centrally(world: World, state: State) -> Identification:
    """Stations cluster local models that all users trained from one common model and uploaded.

    The common model is the mean of the task models: local models are comparable only when they
    started from the same weights. The uploads are clipped, noised and charged like any other;
    users who cannot pay keep their task.
    """
    privacy = world.scenario.privacy
    noise_std = np.zeros(world.users)
    if privacy.noise != "off":
        noise_std = np.maximum(privacy.n_min / world.samples, np.sqrt(privacy.v_max))
    ledger = state.ledger.copy()
    everyone = np.arange(world.users)
    paid = ledger.charge(everyone, release_rho(world.clip, noise_std, privacy.adjacency))
    users = everyone[paid]
    identities = state.identities.copy()
    if len(users) >= world.tasks:
        result = world.engine.train(
            state.round,
            users,
            None,
            world.clip[users],
            noise_std[users],
            learning_rate=world.scenario.training.learning_rate,
            batch=world.scenario.training.batch,
            purpose="kmeans_noise",
            base=state.models.mean(axis=0, dtype=np.float64).astype(np.float32),
        )
        rng = generator(world.seed, "kmeans", round=state.round)
        identities[users] = kmeans_identities(result.uploads, identities[users], world.tasks, rng)
    return Identification(identities, ledger, users, everyone[~paid])


def associate(
    world: World, state: State, identities: NDArray[np.int64], policy: Policy
) -> tuple[Observation, NDArray[np.bool_]]:
    """Each station chooses users, (B, U) bool, from what it can see."""
    observation = observe(world, state, identities)
    answer = policy(observation, generator(world.seed, "policy", round=state.round))
    selected = validated_selection(answer, world.users, world.scenario.network.stations)
    return observation, selected & observation.available


def observe(world: World, state: State, identities: NDArray[np.int64]) -> Observation:
    """What the stations know when they choose."""
    return Observation(
        round=state.round,
        identities=identities,
        distances_m=distances(state.positions_m, world.stations_m),
        gains=world.channel.gains(state.positions_m, world.stations_m, state.round),
        samples=world.samples,
        capable=world.capable,
        blocks=world.scenario.network.blocks,
        downlink_slots=world.slots,
        power_w=world.power_w,
        noise_w=world.noise_w,
        min_sinr=world.min_sinr,
        available=~state.exhausted,
        kept=(identities == state.identities) & (state.round > 0),
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
    plan = project(
        selected,
        identification.identities,
        world.capable,
        observation.gains,
        world.samples,
        blocks=observation.blocks,
        downlink_slots=observation.downlink_slots,
        power_w=observation.power_w,
        noise_w=observation.noise_w,
        min_sinr=observation.min_sinr,
        first_station=state.round % world.scenario.network.stations,
    )
    ledger = identification.ledger.copy()
    privacy = world.scenario.privacy
    refused: list[NDArray[np.int64]] = []
    while True:
        served = np.flatnonzero(plan.station >= 0)
        noise_std, infeasible = _noise(world, identification.identities, plan)
        rho = release_rho(world.clip[served], noise_std[served], privacy.adjacency)
        paid = ledger.affordable(served, rho)
        if paid.all():
            ledger.charge(served, rho)
            break
        refused.append(served[~paid])
        ledger.refusals[served[~paid]] += 1
        plan = _without(plan, served[~paid], identification.identities)
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
    """Served users clip, add noise, step and upload, Eqs. (5) and (6) with errata E5, E10 and E12."""
    users = np.flatnonzero(decision.plan.station >= 0)
    result = world.engine.train(
        state.round,
        users,
        identities[users],
        world.clip[users],
        decision.noise_std[users],
        learning_rate=world.scenario.training.learning_rate,
        batch=world.scenario.training.batch,
    )
    accepted = screen(result.uploads, world.weights)
    return Uploads(users, result.uploads, accepted, result.mean_norm, result.clipped_fraction)


def aggregate(
    world: World,
    state: State,
    identities: NDArray[np.int64],
    decision: Decision,
    uploads: Uploads,
) -> NDArray[np.float32]:
    """(K, D) new global models: mean at each station (7), then over stations (8) with errata E9."""
    users = uploads.users[uploads.accepted]
    return aggregate_models(
        uploads.weights[uploads.accepted],
        identities[users],
        decision.plan.station[users],
        world.samples[users],
        state.models,
        world.scenario.network.stations,
    )


def evaluate(world: World, state: State, models: NDArray[np.float32], identities: NDArray[np.int64]) -> Evaluation:
    """Every user's loss and accuracy on its task's new model (errata E7)."""
    world.engine.publish(models, state.movements)
    return world.engine.evaluate(identities)


def advance(
    world: World,
    state: State,
    models: NDArray[np.float32],
    identification: Identification,
    decision: Decision,
) -> State:
    """The state of the next round: users have moved, changed models have a new movement (2)."""
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
    return State(
        round=state.round + 1,
        positions_m=positions,
        mobility_memory=memory,
        models=models,
        movements=np.where(changed[:, None], moved, state.movements),
        active=decision.plan.active,
        identities=identification.identities,
        served_rounds=state.served_rounds + (decision.plan.station >= 0),
        exhausted=exhausted,
        ledger=decision.ledger,
    )
