"""Running a scenario: `simulate` for a whole run, `Simulation` for one round at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from torch import nn

from covey.arrays import read_only
from covey.association import Policy, get_policy, made_policy
from covey.data import UserData, load_dataset, partition
from covey.data.over_time import DataOverTime
from covey.data.transforms.protocol import transform_users
from covey.errors import ScenarioError
from covey.extras import require_extra
from covey.faults import Named
from covey.federated import (
    Aggregation,
    Engine,
    Fleet,
    LocalTraining,
    Loss,
    Members,
    Transport,
    build_loss,
    build_model,
    build_training,
    count_weights,
    initial_weights,
)
from covey.federated.training import least_noise
from covey.identification import Rule, ScoreRule, build_rule
from covey.identification.start import build_start, known_models
from covey.part_checks import why_not_callable
from covey.parts import AGGREGATIONS, CHANNELS, DATA_OVER_TIME, MOBILITIES, RULES
from covey.privacy import Journal, Ledger, build_noise, charge_lost, labelled
from covey.radio import ChannelModel, MobilityModel, TraceMobility, build_channel, build_mobility, place
from covey.scenario import Scenario, load_scenario
from covey.seeding import generator
from covey.simulation.fit import check_broadcasts, check_members, check_parts, what_is_lacking
from covey.simulation.history import History
from covey.simulation.own_parts import (
    TRANSPORT,
    check_personal,
    check_training,
    checked_positions,
    faults_named,
)
from covey.simulation.own_rules import checked_tasks, first_models, started
from covey.simulation.record import RoundRecord
from covey.simulation.reference import Reference, checked_reference, with_central
from covey.simulation.round import play_round
from covey.simulation.state import State
from covey.simulation.target import with_target
from covey.simulation.world import LossyTransport, World, clipping_norms

#: Largest number of rounds of a run, that of `training.rounds`.
MOST_ROUNDS = 10**9


def simulate(
    scenario: Scenario | str | Path,
    policy: str | Policy = "greedy",
    *,
    rounds: int | None = None,
    seed: int = 0,
    model: nn.Module | None = None,
    data: UserData | None = None,
    channel: ChannelModel | None = None,
    mobility: MobilityModel | None = None,
    transport: Transport | None = None,
    workers: int = 1,
    reference: Reference | None = None,
    on_round: Callable[[RoundRecord], None] | None = None,
) -> History:
    """The history of a whole run.

    `scenario` is a `Scenario` or the name of a preset or TOML file; `policy` a name or any callable
    `(Observation, numpy Generator) -> (B, U) bool`. `model`, `data`, `channel` and `mobility`
    replace what the scenario names, and `data` are what models see: a `data.transform` beside them is refused, because
    they may hold its features already. `transport(round, uploads)` returns the uploads that arrive, which
    may be fewer, more or other ones. `reference(data)` gives the column `central`: each user's accuracy
    on a model to compare with, (U,), such as `covey.evaluation.Central`. `on_round` is called
    after every round. The result is the same, bit by bit, at any number of `workers` (processes).
    """
    with Simulation(
        scenario, policy, rounds=rounds, seed=seed, model=model, data=data, channel=channel, mobility=mobility,
        transport=transport, workers=workers, reference=reference,
    ) as simulation:  # fmt: skip
        while not simulation.done:
            record = simulation.play()
            if on_round is not None:
                on_round(record)
        return simulation.history


class Simulation:
    """A run that is played round by round; use it as a context manager, it owns worker processes.

    The arguments are those of `simulate`, and a `journal` of all charges on disk. Users who are elsewhere come
    as a `fleet` with what is public about its `members`; the run then has no `data`. `state` and `history` are what
    has been reached so far.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path,
        policy: str | Policy = "greedy",
        *,
        rounds: int | None = None,
        seed: int = 0,
        model: nn.Module | None = None,
        data: UserData | None = None,
        channel: ChannelModel | None = None,
        mobility: MobilityModel | None = None,
        transport: Transport | None = None,
        workers: int = 1,
        reference: Reference | None = None,
        journal: Journal | None = None,
        fleet: Fleet | None = None,
        members: Members | None = None,
    ) -> None:
        if not isinstance(scenario, Scenario):
            if not isinstance(scenario, (str, Path)):
                raise ScenarioError(
                    f"the scenario is {scenario!r}; give a Scenario, or the name of a preset or of a TOML file"
                )
            scenario = load_scenario(scenario)
        if scenario.security.mode == "masked":
            require_extra("masks", "security.mode = 'masked'")
        seed = _whole(seed, 0, None, "the seed", "seeds are whole numbers from 0")
        if rounds is not None:
            rounds = _whole(rounds, 1, MOST_ROUNDS, "rounds", f"a run has at least 1 round, and at most {MOST_ROUNDS}")
        workers = _whole(workers, 1, None, "workers", "give the number of processes, at least 1")
        self.policy: Policy = get_policy(policy) if isinstance(policy, str) else made_policy(policy)
        name = policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__)
        _check_given(model, data, channel, mobility, transport, reference)
        self.reference = reference
        self.data: UserData | None = None
        if fleet is None or members is None:
            self.data = (user_data(scenario, seed) if data is None else _as_given(scenario, data)).read_only()
            members = _members(self.data)
        check_members(scenario, members)
        module = build_model(scenario.model, members.shape, members.classes) if model is None else model
        loss = build_loss(scenario.training.loss, members.classes)
        stations_m, users_m = place(scenario.network, seed)
        if isinstance(mobility, TraceMobility):
            users_m = mobility.first_m
        rule = build_rule(scenario)
        start = build_start(scenario, rule)
        training, personal = build_training(scenario)
        aggregation: Aggregation = AGGREGATIONS.build(scenario.training.aggregation, scenario)
        resolved = with_target(scenario, members.samples, rounds=rounds, training=training, rule=rule)
        over_time: DataOverTime = DATA_OVER_TIME.build(scenario.data.over_time, scenario, seed)
        lacking = what_is_lacking(scenario, members, training) | ({} if fleet is None else dict(fleet.lacks))
        check_parts(scenario, lacking, rule, start, training, aggregation, personal, over_time)
        self.world = World(
            scenario=resolved,
            seed=seed,
            stations_m=stations_m,
            samples=members.samples,
            test_samples=members.test_samples,
            groups=members.groups,
            clip=clipping_norms(scenario, members.samples),
            weights=count_weights(module),
            first_models=first_models(scenario, start, initial_weights(module, scenario.network.tasks, seed)),
            rule=rule,
            start=start,
            local_training=training,
            aggregation=aggregation,
            personal=personal,
            over_time=over_time,
            data=self.data,
            channel=channel or build_channel(scenario, seed),
            mobility=mobility or build_mobility(scenario.mobility, scenario.network.area_m),
            fleet=fleet or _engine(scenario, seed, module, self.data, workers, rule, training, loss),
            transport=LossyTransport(scenario.radio.loss_probability, seed, transport),
            journal=_begun(journal or Journal(), scenario),
            meter={},
        )
        try:
            check_broadcasts(self.world)
            with faults_named(self.world, "before round 1"):
                check_training(self.world)
                check_personal(self.world)
                self.state = self._initial_state(users_m)
            self.history = self._empty_history(name, rounds or scenario.training.rounds)
        except BaseException:
            self.close()
            raise

    @property
    def done(self) -> bool:
        """Whether the last round has been played."""
        return self.history.complete

    def play(self) -> RoundRecord:
        """Play one round and return its record; an exception leaves everything but the charges as it was.

        What was charged may have left. With seeded noise it is the same when the round is played again
        and costs nothing more; with secure noise it has been spent.
        """
        self._charge_lost()
        before, records = self.state, self.history.records
        try:
            with faults_named(self.world, f"in round {before.round + 1}", self.policy):
                state, record = play_round(self.world, before, self.policy)
            self.continue_from(state, [*records, self.referred(record)])
        except BaseException:
            self.continue_from(before, records)
            self._charge_lost()
            raise
        return self.history.records[-1]

    def _charge_lost(self) -> None:
        """Charge what left in a round that did not end; seeded noise is the same again and costs nothing more."""
        journal, state = self.world.journal, self.state
        if self.world.scenario.privacy.noise != "secure" or not any(e.round >= state.round for e in journal.last):
            return
        ledger = charge_lost(state.ledger, journal.last, state.round)
        self.continue_from(replace(state, ledger=ledger), self.history.records)
        # Only now: whoever is interrupted before charges the round when the next one begins.
        journal.last = []

    def referred(self, record: RoundRecord) -> RoundRecord:
        """The record with the accuracy of `reference` on the data of its round, where there is one."""
        if self.reference is None or self.world.data is None or np.isfinite(record.central):
            return record
        data = self.world.over_time.at(record.round - 1, self.world.data)
        return with_central(record, checked_reference(self.reference(data), self.world.users), self.world.test_samples)

    def continue_from(self, state: State, records: list[RoundRecord]) -> None:
        """Take over a state and the records that led to it."""
        self.state = state
        self.history.records = records
        self.history.models = state.models
        self.history.ledger = state.ledger
        self.history.served_rounds = state.served_rounds

    def close(self) -> None:
        """End the worker processes."""
        self.world.fleet.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _initial_state(self, users_m: np.ndarray[Any, np.dtype[np.float64]]) -> State:
        world, scenario = self.world, self.world.scenario
        models = world.first_models.copy()
        rng = generator(world.seed, "identity")
        truth = world.groups if world.rule.given else np.full_like(world.groups, -1)
        first_m = read_only(users_m)
        memory = world.mobility.start(first_m, generator(world.seed, "mobility"))
        users_m, memory = checked_positions(world, first_m, memory, "start")
        tasks = world.rule.start(world.users, scenario.first_tasks, truth, rng)
        ledger = Ledger(
            world.users,
            delta=scenario.privacy.delta,
            adjacency=scenario.privacy.adjacency,
            unit=scenario.privacy.unit,
            budget_epsilon=scenario.privacy.budget_epsilon,
        )
        active, first_memory = started(world)
        ledger.plan(least_noise(scenario.privacy, world.local_training, world.clip, world.samples))
        return State(
            round=0,
            positions_m=users_m,
            mobility_memory=memory,
            models=models,
            movements=np.zeros_like(models),
            active=active,
            identities=checked_tasks(world, RULES, world.rule, tasks, "start"),
            served_rounds=np.zeros(world.users, dtype=np.int64),
            exhausted=np.zeros(world.users, dtype=bool),
            memory=first_memory,
            personal=np.zeros((world.users, world.weights) if world.has_personal else (0, 0), dtype=np.float32),
            personal_begun=np.zeros(world.users if world.has_personal else 0, dtype=bool),
            ledger=ledger,
        )

    def _empty_history(self, policy: str, rounds: int) -> History:
        world, state = self.world, self.state
        return History(
            scenario=world.scenario,
            seed=world.seed,
            policy=policy,
            rounds=rounds,
            samples=world.samples,
            groups=world.groups,
            stations_m=world.stations_m,
            clip=world.clip,
            start=self._start(),
            models=state.models,
            ledger=state.ledger,
            upload_bits=float(world.upload_bits),
            served_rounds=state.served_rounds,
            milliseconds=world.meter,
        )

    def _start(self) -> dict[str, Any]:
        """Losses and accuracies of the untrained models under the first identities."""
        world = self.world
        world.fleet.publish(known_models(self.state.models, self.state.memory), self.state.movements)
        found = world.fleet.evaluate(self.state.identities)
        groups = range(world.scenario.groups) if np.any(world.groups >= 0) else ()
        members = [world.groups == group for group in groups]
        return {
            "loss": _mean(found.train_loss_sum, world.samples),
            "accuracy": _mean(found.test_correct, world.test_samples),
            "group_loss": [_mean(found.train_loss_sum[m], world.samples[m]) for m in members],
            "group_accuracy": [_mean(found.test_correct[m], world.test_samples[m]) for m in members],
        }


def _check_given(
    model: object, data: object, channel: object, mobility: object, transport: object, reference: object
) -> None:
    """Refuse arguments of `simulate` that are not what they should be."""
    for name, given, kind in (("model", model, nn.Module), ("data", data, UserData)):
        if given is not None and not isinstance(given, kind):
            where = "torch.nn.Module" if kind is nn.Module else "covey.UserData"
            raise ScenarioError(f"{name} is {given!r:.80}, not a {where}; give one, or leave {name} out")
    for registry, part in ((CHANNELS, channel), (MOBILITIES, mobility)):
        if part is not None:
            registry.check_made(Named.of(registry, part).name, part)
    if transport is not None and (why := why_not_callable(transport, 2)):
        raise TRANSPORT.refused(Named.of(TRANSPORT, transport).name, why)
    if reference is not None and (why := why_not_callable(reference, 1)):
        raise ScenarioError(
            f"reference {why}; give a function of the users' data, such as covey.evaluation.Central, or leave it out"
        )


def _begun(journal: Journal, scenario: Scenario) -> Journal:
    """The journal of a run that begins: what was charged to others before is none of its."""
    journal.last = []
    return labelled(journal, scenario.privacy.unit, scenario.privacy.adjacency)


def _whole(value: Any, least: int, most: int | None, what: str, allowed: str) -> int:
    """The value, if it is a whole number within these bounds."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least or value > (most or value):
        raise ScenarioError(f"{what} is {value!r}; {allowed}")
    return int(value)


def _as_given(scenario: Scenario, data: UserData) -> UserData:
    """The users' data that a run was given; refused beside a transform, which may have been applied to them or not."""
    if scenario.data.transform != "none":
        raise ScenarioError(
            f"data was given, but data.transform is '{scenario.data.transform}', which is applied only to data that the"
            " scenario names; give features as data, and put the transform back with data.transform=none"
        )
    return data


def user_data(scenario: Scenario, seed: int) -> UserData:
    """The data of all users of a run with this seed."""
    dataset = load_dataset(scenario.data, groups=scenario.groups, seed=seed)
    return transform_users(scenario.data, partition(dataset, scenario, seed))


def _engine(
    scenario: Scenario,
    seed: int,
    module: nn.Module,
    data: UserData | None,
    workers: int,
    rule: Rule,
    training: LocalTraining,
    loss: Loss,
) -> Engine:
    """The fleet of users that compute here."""
    if data is None:
        raise ScenarioError("a fleet without members, or members without a fleet, cannot play; give both or neither")
    return Engine(
        module,
        data,
        tasks=scenario.network.tasks,
        workers=workers,
        seed=seed,
        noise=build_noise(scenario.privacy.noise, seed),
        training=training,
        announcer=rule.announcement if isinstance(rule, ScoreRule) else None,
        gradients=scenario.compute.gradients,
        loss=loss,
    )


def _members(data: UserData) -> Members:
    return Members(data.samples, np.diff(data.test_offsets), data.groups, data.shape, len(data.classes))


def _mean(sums: np.ndarray[Any, Any], counts: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    """Sums over counts, of the users whose sum is known; undefined when none is."""
    known = ~np.isnan(sums)
    return float(sums[known].sum() / counts[known].sum()) if known.any() else float("nan")
