"""One round of clustered federated learning.

A round is `begin_round` (broadcast, identify, observe), a decision of the stations, and `finish_round` (allocate,
train, reconcile the ledger, aggregate, evaluate, account, advance). `play_round` is the whole round under a policy; the
environment with real rounds uses the two halves, and a deployment plays the same rounds with a fleet of devices. A
round takes a `State` and returns the next one with a record of what happened; all randomness comes from generators
derived from the seed, the user and the round, so that a round can be repeated from its state alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from covey.allocation import noise_levels
from covey.arrays import make_read_only, read_only
from covey.association import Policy, validated_selection
from covey.data.majority import majority_accuracy
from covey.federated import Accepted, Evaluation, Steps, admit
from covey.identification import Identification, Regrouped, RuleRound, Trained
from covey.identification.rescue import offer_free_model
from covey.identification.start import known_models, models_in_play
from covey.identification.turns import resting, taking_turns
from covey.network import Observation, Plan, with_fresh
from covey.parts import RULES, STARTS
from covey.radio import broadcast_times, distances
from covey.seeding import generator
from covey.simulation.account import account
from covey.simulation.masking import aggregate_masked, broadcasting, counts_of, totals_of, without_small_tasks
from covey.simulation.own_parts import (
    arrived,
    checked_advance,
    checked_data,
    checked_forgotten,
    checked_gains,
    checked_kept,
    checked_models,
    checked_reach,
    checked_releases,
    moved,
    projected,
)
from covey.simulation.own_rules import checked_groups, checked_identification
from covey.simulation.record import RoundRecord
from covey.simulation.stages import Decision, Finished, NewModels, PersonalModels, Turn, Uploads
from covey.simulation.state import State
from covey.simulation.world import World


def play_round(world: World, state: State, policy: Policy) -> tuple[State, RoundRecord]:
    """The next state and the record of the round that led to it."""
    turn = begin_round(world, state)
    selected = decide(world, turn, policy)
    finished = finish_round(world, turn, selected)
    return finished.state, finished.record


def begin_round(world: World, state: State) -> Turn:
    """The round up to the stations' choice: models are sent, users find their task, stations see who is there."""
    groups, majority = renew_data(world, state.round)
    broadcast_s = broadcast(world, state)
    identification = identify(world, state, groups)
    observation = observe(world, state, identification.identities)
    return Turn(state, broadcast_s, identification, observation, groups, majority)


def finish_round(world: World, turn: Turn, selected: NDArray[np.bool_]) -> Finished:
    """The rest of the round when the stations have selected these users, (B, U)."""
    selected = selected & turn.observation.available
    decision = allocate(world, turn, selected)
    uploads = train(world, turn, decision)
    personal = personalise(world, turn, uploads)
    decision = reconcile_ledger(world, turn, decision, uploads)
    new = aggregate(world, turn, decision, uploads)
    evaluation = evaluate(world, turn, new)
    groups = regroup(world, turn, decision, uploads, new)
    record = account(world, turn, selected, decision, uploads, new, evaluation, groups, personal)
    return Finished(advance(world, turn, decision, new, groups, personal), record, decision, evaluation)


def renew_data(world: World, round: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Users hold the data of this round; for measurement only, (U,) each: true groups, and the accuracy of guessing."""
    if world.data is None:
        return world.groups, np.full(world.users, np.nan)
    data = checked_data(world, world.over_time.at(round, world.data))
    world.fleet.hold(data)
    return data.groups, majority_accuracy(data)


def broadcast(world: World, state: State) -> NDArray[np.float64]:
    """Stations send the models that changed; (B,) seconds of air time, Eq. (10).

    A model changes only where somebody uploaded, so after this every user's copies equal the
    global models (errata E26).
    """
    world.fleet.publish(known_models(state.models, state.memory), state.movements)
    radio = world.scenario.radio
    return broadcast_times(state.active, world.model_bits, radio.downlink_rate_bps)


def identify(world: World, state: State, groups: NDArray[np.int64]) -> Identification:
    """Each user works out its task, Eqs. (1) to (4) with errata E1, E2 and E4, and announces it; see the rule."""
    at = rule_round(world, state, groups)
    if world.start.under_way(state.round, state.memory):
        return checked_identification(world, STARTS, world.start, world.start.identify(at), state)
    return checked_identification(world, RULES, world.rule, world.rule.identify(at), state)


def rule_round(world: World, state: State, groups: NDArray[np.int64]) -> RuleRound:
    """What the identification rule may use in a round."""
    return RuleRound(
        round=state.round,
        seed=world.seed,
        scenario=world.scenario,
        fleet=world.fleet,
        training=world.local_training.at(state.round),
        samples=world.samples,
        clip=world.clip,
        truth=groups if world.rule.given else np.full_like(groups, -1),
        models=state.models,
        movements=state.movements,
        identities=state.identities,
        exhausted=state.exhausted,
        ledger=state.ledger.read_only(),
        journal=world.journal,
        memory=state.memory,
    )


def decide(world: World, turn: Turn, policy: Policy) -> NDArray[np.bool_]:
    """Each station chooses users, (B, U) bool, from what it can see."""
    answer = policy(turn.observation, generator(world.seed, "policy", round=turn.state.round))
    return validated_selection(answer, world.users, world.scenario.network.stations)


def observe(world: World, state: State, identities: NDArray[np.int64]) -> Observation:
    """What the stations know when they choose; stations that are kept blind see all users as of one task.

    A user of a task whose model was never sent has nothing to train: it sits out the round and is charged nothing. So
    do users who rest while others take their turn.
    """
    limits, kept = world.limits, (identities == state.identities) & (state.round > 0)
    lost = (identities >= 0) & ~models_in_play(state.memory, world.tasks)[identities]
    if world.blind:
        identities, limits = np.zeros_like(identities), limits.without_tasks()
        kept = np.zeros_like(kept)
    gains = checked_gains(world, world.channel.gains(state.positions_m, world.stations_m, state.round))
    observation = Observation(
        round=state.round,
        identities=read_only(identities),
        distances_m=read_only(distances(state.positions_m, world.stations_m)),
        gains=read_only(gains),
        samples=world.samples,
        available=read_only(~state.exhausted & ~lost),
        kept=read_only(kept),
        limits=limits,
    )
    if not taking_turns(state.memory):
        return observation
    rest = resting(identities, np.asarray(observation.reachable.any(axis=0)), state.memory)
    return replace(observation, available=read_only(observation.available & ~rest))


def allocate(world: World, turn: Turn, selected: NDArray[np.bool_]) -> Decision:
    """Blocks by iterated safe matching, noise in closed form, and the charge of every release.

    A user whose budget cannot pay its release is taken out before anything is sent, and the noise
    of its task is computed again for the others.
    """
    observation = turn.observation
    plan = projected(world, observation, selected)
    ledger = turn.identification.ledger.copy()
    refused: list[NDArray[np.int64]] = []
    while True:
        served = np.flatnonzero(plan.station >= 0)
        noise_std, infeasible = _noise(world, observation.identities, plan)
        found = world.local_training.releases(world.clip[served], noise_std[served], world.samples[served])
        releases = checked_releases(world, found, len(served))
        paid = ledger.affordable(served, releases)
        if paid.all():
            ledger.charge(served, releases)
            world.journal.record(turn.state.round, "gradient", served, releases)
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


def train(world: World, turn: Turn, decision: Decision) -> Uploads:
    """Served users train, add noise and upload, Eqs. (5) and (6) with errata E5, E10 and E12.

    What arrives is checked; what is lost or turned away stays charged, for it has left the device.
    """
    state, identities = turn.state, turn.identification.identities
    users = np.flatnonzero(decision.plan.station >= 0)
    training, batch = world.local_training.at(state.round), world.scenario.training.batch
    steps = Steps(
        users, identities[users], world.clip[users], decision.noise_std[users], training.learning_rate, batch,
        world.samples[users], stations=decision.plan.station[users], blocks=decision.plan.block[users],
        own=_own(state, users) if world.personal.uploads and world.has_personal else None,
    )  # fmt: skip
    result = world.fleet.release(state.round, steps)
    reach = training.reach(world.clip[users], world.samples[users], decision.noise_std[users], world.weights)
    intake = admit(
        arrived(world, state.round, result.uploads),
        state.round,
        users,
        state.models,
        identities[users],
        checked_reach(world, reach, len(users)),
        sealed=world.masked,
    )
    return Uploads(intake, result.mean_norm, result.clipped_fraction, result.refused, result.kept)


def _own(state: State, users: NDArray[np.int64]) -> list[NDArray[np.float32] | None]:
    """Models of their own that these users have, (D,) each."""
    return [state.personal[user] if state.personal_begun[user] else None for user in users]


def personalise(world: World, turn: Turn, uploads: Uploads) -> PersonalModels:
    """Users train the models that they keep for themselves, from what they received; nothing of it leaves them.

    Where uploads are made from them, they were trained with these, and are only measured here; a user without one yet
    has the received one.
    """
    state, identities = turn.state, turn.identification.identities
    weights, begun = state.personal.copy(), state.personal_begun.copy()
    trained = np.zeros(world.users, dtype=bool)
    loss, right = np.full((2, world.users), np.nan)
    if world.has_personal:
        if world.personal.uploads:
            served = uploads.intake.users
            weights[served], begun[served] = checked_kept(world, uploads.kept, len(served)), True
        trained = (identities >= 0) & models_in_play(state.memory, world.tasks)[identities]
        users = np.flatnonzero(trained)
        own = [weights[user] if begun[user] else None for user in users]
        found, loss[users], right[users] = world.engine.personalise(
            world.personal, state.round, users, identities[users], own
        )
        if not world.personal.uploads:
            weights[users], begun[users] = found, True
    return PersonalModels(weights, begun, trained, loss, right)


def reconcile_ledger(world: World, turn: Turn, decision: Decision, uploads: Uploads) -> Decision:
    """The decision with the ledger that users' own ledgers and refusals lead to; the same where users have none.

    Nothing left a user that refused, so that its charge is taken back; it sits out from then on. Where a
    user's own total is larger than the run's, it counts.
    """
    spent, refused = world.fleet.device_ledgers(), uploads.refused
    if spent is None and len(refused) == 0 and not world.fleet.reports_metrics:
        return decision
    before, ledger = turn.identification.ledger, decision.ledger.copy()
    ledger.take_back(refused, before)
    ledger.refuse(refused)
    if world.fleet.reports_metrics:
        ledger.label_measured(np.arange(world.users))
    if spent is not None:
        ledger = ledger.raise_to(spent)
    return replace(decision, ledger=ledger, refused=np.concatenate([decision.refused, refused]))


def aggregate(world: World, turn: Turn, decision: Decision, uploads: Uploads) -> NewModels:
    """New global models from the uploads that were let in, and what the server optimiser makes of them."""
    new, state = combine(world, turn, decision, uploads), turn.state
    advanced = world.aggregation.advance(state.models, new.models, new.totals > 0, state.aggregation)
    models, memory = checked_advance(world, state.models, new.totals > 0, advanced)
    return replace(new, models=read_only(models), memory=memory)


def combine(world: World, turn: Turn, decision: Decision, uploads: Uploads) -> NewModels:
    """The uploads that were let in, combined, Eqs. (7) and (8); or masked sums over all stations."""
    state, identities = turn.state, turn.identification.identities
    if world.masked:
        return aggregate_masked(world, state, identities, decision, uploads.intake)
    intake, counts = uploads.intake, None
    if world.blind:
        counts = counts_of(world, identities, intake)
        intake = without_small_tasks(world, identities, intake)
    users = intake.users[intake.accepted]
    accepted = Accepted(
        intake.weights if intake.accepted.all() else intake.weights[intake.accepted],
        identities[users],
        decision.plan.station[users],
        world.samples[users],
        state.models,
        world.scenario.network.stations,
    )
    models = checked_models(world, accepted, world.aggregation.combine(accepted))
    joined = np.zeros(world.users, dtype=bool)
    joined[users] = True
    closed = len(np.unique(identities[uploads.intake.users[uploads.intake.accepted]])) - len(
        np.unique(identities[users])
    )
    totals = totals_of(world, identities, users)
    return NewModels(read_only(models), totals, joined, closed_tasks=closed, counts=counts)


def evaluate(world: World, turn: Turn, new: NewModels) -> Evaluation:
    """Every user's loss and accuracy on its task's new model (errata E7)."""
    world.fleet.publish(known_models(new.models, turn.state.memory), turn.state.movements)
    return world.fleet.evaluate(turn.identification.identities)


def regroup(world: World, turn: Turn, decision: Decision, uploads: Uploads, new: NewModels) -> Regrouped:
    """What stations make of the groups: post-processing of what was released or broadcast, so that it costs nothing."""
    state = turn.state
    trained = Trained(
        intake=uploads.intake,
        joined=new.joined,
        noise_std=decision.noise_std,
        models=new.models,
        movements=_movements(state, new.models),
        totals=new.totals,
        first_models=world.first_models,
        counts=new.counts,
        asked=np.asarray(turn.observation.reachable.any(axis=0)) if world.scenario.clustering.turns else None,
    )
    make_read_only(trained)
    at = rule_round(world, state, turn.groups)
    if world.start.under_way(state.round, state.memory):
        made = world.start.after_round(at, turn.identification, trained)
        return checked_groups(world, STARTS, world.start, made, state.memory)
    made = world.rule.after_round(at, turn.identification, trained)
    groups = checked_groups(world, RULES, world.rule, made, state.memory)
    if world.scenario.clustering.rescue and world.rule.guided:
        announced = world.rule.announces(state.round + 1)
        groups = offer_free_model(at, turn.identification, trained, groups, announced)
    return groups


def _movements(state: State, models: NDArray[np.float32]) -> NDArray[np.float32]:
    """(K, D) last movement of each model (2), the earlier one where a model stayed."""
    moved = models - state.models
    return np.where(np.any(moved != 0, axis=1)[:, None], moved, state.movements)


def advance(
    world: World, turn: Turn, decision: Decision, new: NewModels, groups: Regrouped, personal: PersonalModels
) -> State:
    """The state of the next round: users have moved, changed models have a new movement (2)."""
    state = turn.state
    models = new.models if groups.models is None else groups.models
    changed = np.any(models != state.models, axis=1)
    replaced = np.any(models != new.models, axis=1)
    active = broadcasting(world, changed) if world.blind else decision.plan.active
    if groups.fresh is not None and not world.blind:
        active = with_fresh(np.zeros_like(active) if groups.alone else active, groups.fresh, world.limits)
    rng = generator(world.seed, "mobility", round=state.round + 1)
    round_s = world.scenario.mobility.round_s
    positions, mobility_memory = moved(
        world, world.mobility.move(state.positions_m, state.mobility_memory, round_s, rng)
    )
    exhausted = state.exhausted.copy()
    exhausted[decision.refused] = True
    return State(
        round=state.round + 1,
        positions_m=positions,
        mobility_memory=mobility_memory,
        models=models,
        movements=_movements(state, models) if groups.movements is None else groups.movements,
        active=active,
        identities=groups.identities,
        served_rounds=state.served_rounds + (decision.plan.station >= 0),
        exhausted=exhausted,
        ledger=decision.ledger,
        memory=groups.memory,
        aggregation=checked_forgotten(world, world.aggregation.forget(new.memory, replaced)),
        personal=personal.weights,
        personal_begun=personal.begun,
    )
