"""Running a scenario: `simulate` for a whole run, `Simulation` for one round at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from torch import nn

from covey.association import Policy, get_policy
from covey.data import UserData, load_dataset, partition
from covey.errors import ScenarioError
from covey.learning import (
    Engine,
    Fleet,
    Members,
    Transport,
    build_model,
    count_weights,
    initial_weights,
    random_identities,
)
from covey.privacy import Journal, Ledger, build_noise, charge_lost
from covey.radio import Channel, ChannelModel, MobilityModel, TraceMobility, build_mobility, place
from covey.scenario import Scenario, load_scenario
from covey.seeding import generator
from covey.simulation.history import History
from covey.simulation.record import RoundRecord
from covey.simulation.round import play_round
from covey.simulation.state import State
from covey.simulation.world import LossyTransport, World, capability, clipping_norms


def simulate(
    scenario: Scenario | str,
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
    on_round: Callable[[RoundRecord], None] | None = None,
) -> History:
    """The history of a whole run.

    `scenario` is a `Scenario` or the name of a preset or TOML file; `policy` a name or any callable
    `(Observation, numpy Generator) -> (B, U) bool`. `model`, `data`, `channel` and `mobility`
    replace what the scenario names; `transport(round, uploads)` returns the uploads that arrive, which
    may be fewer, more or other ones. `on_round` is called after every round. The result is the
    same, bit by bit, at any number of `workers` (processes).
    """
    with Simulation(
        scenario, policy, rounds=rounds, seed=seed, model=model, data=data, channel=channel, mobility=mobility,
        transport=transport, workers=workers,
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
        scenario: Scenario | str,
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
        journal: Journal | None = None,
        fleet: Fleet | None = None,
        members: Members | None = None,
    ) -> None:
        if not isinstance(scenario, Scenario):
            scenario = load_scenario(scenario)
        if seed < 0:
            raise ScenarioError(f"the seed is {seed}; seeds are whole numbers from 0")
        if rounds is not None and rounds < 1:
            raise ScenarioError(f"rounds is {rounds}; a run has at least 1 round")
        self.policy: Policy = get_policy(policy) if isinstance(policy, str) else policy
        name = policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__)
        if fleet is None or members is None:
            self.data = user_data(scenario, seed) if data is None else data
            members = _members(self.data)
        _check_fit(scenario, members)
        module = build_model(scenario.model, members.shape, members.classes) if model is None else model
        stations_m, users_m = place(scenario.network, seed)
        if isinstance(mobility, TraceMobility):
            users_m = mobility.first_m
        self.world = World(
            scenario=scenario,
            seed=seed,
            stations_m=stations_m,
            capable=capability(scenario),
            samples=members.samples,
            test_samples=members.test_samples,
            groups=members.groups,
            clip=clipping_norms(scenario, members.samples),
            weights=count_weights(module),
            first_models=initial_weights(module, scenario.network.tasks, seed),
            channel=channel or Channel(scenario.radio, scenario.network.min_distance_m, seed),
            mobility=mobility or build_mobility(scenario.mobility, scenario.network.area_m),
            fleet=fleet
            or Engine(
                module,
                self.data,
                tasks=scenario.network.tasks,
                workers=workers,
                seed=seed,
                noise=build_noise(scenario.privacy.noise, seed),
            ),
            transport=LossyTransport(scenario.radio.loss_probability, seed, transport),
            journal=journal or Journal(),
            meter={},
        )
        try:
            if self.world.blind and self.world.slots < scenario.network.tasks:
                raise ScenarioError(
                    f"with security.mode = '{scenario.security.mode}' all {scenario.network.tasks} models may have to"
                    f" be broadcast in a round, but only {self.world.slots} fit into radio.downlink_limit_s; raise"
                    " it, or radio.downlink_rate_bps"
                )
            self.state = self._initial_state(users_m)
            self.history = History(
                scenario=scenario,
                seed=seed,
                policy=name,
                rounds=rounds or scenario.training.rounds,
                samples=self.world.samples,
                groups=self.world.groups,
                stations_m=stations_m,
                clip=self.world.clip,
                start=self._start(),
                models=self.state.models,
                ledger=self.state.ledger,
                upload_bits=float(self.world.upload_bits),
                served_rounds=self.state.served_rounds,
                milliseconds=self.world.meter,
            )
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
        try:
            state, record = play_round(self.world, self.state, self.policy)
        except BaseException:
            if self.world.scenario.privacy.noise == "secure":
                ledger = charge_lost(self.state.ledger, self.world.journal.last, self.state.round)
                self.world.journal.last = []
                self.continue_from(replace(self.state, ledger=ledger), self.history.records)
            raise
        self.continue_from(state, [*self.history.records, record])
        return record

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
        if scenario.clustering.rule == "oracle":
            identities = world.groups.copy()
        else:
            identities = random_identities(world.users, world.tasks, generator(world.seed, "identity"))
        return State(
            round=0,
            positions_m=users_m,
            mobility_memory=world.mobility.start(users_m, generator(world.seed, "mobility")),
            models=models,
            movements=np.zeros_like(models),
            active=world.capable.copy(),
            identities=identities,
            served_rounds=np.zeros(world.users, dtype=np.int64),
            exhausted=np.zeros(world.users, dtype=bool),
            ledger=Ledger(
                world.users,
                delta=scenario.privacy.delta,
                adjacency=scenario.privacy.adjacency,
                budget_epsilon=scenario.privacy.budget_epsilon,
            ),
        )

    def _start(self) -> dict[str, Any]:
        """Losses and accuracies of the untrained models under the first identities."""
        world = self.world
        world.fleet.publish(self.state.models, self.state.movements)
        found = world.fleet.evaluate(self.state.identities)
        groups = range(world.tasks) if np.any(world.groups >= 0) else ()
        members = [world.groups == group for group in groups]
        return {
            "loss": _mean(found.train_loss_sum, world.samples),
            "accuracy": _mean(found.test_correct, world.test_samples),
            "group_loss": [_mean(found.train_loss_sum[m], world.samples[m]) for m in members],
            "group_accuracy": [_mean(found.test_correct[m], world.test_samples[m]) for m in members],
        }


def user_data(scenario: Scenario, seed: int) -> UserData:
    """The data of all users of a run with this seed."""
    dataset = load_dataset(scenario.data, tasks=scenario.network.tasks, seed=seed)
    return partition(dataset, scenario, seed)


def _members(data: UserData) -> Members:
    return Members(data.samples, np.diff(data.test_offsets), data.groups, data.shape, len(data.classes))


def _mean(sums: np.ndarray[Any, Any], counts: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    """Sums over counts, of the users whose sum is known; undefined when none is."""
    known = ~np.isnan(sums)
    return float(sums[known].sum() / counts[known].sum()) if known.any() else float("nan")


def _check_fit(scenario: Scenario, members: Members) -> None:
    users = len(members.samples)
    if users != scenario.network.users:
        raise ScenarioError(
            f"the data has {users} users but the scenario {scenario.network.users}; set network.users = {users}"
        )
    groups = len(np.unique(members.groups))
    if members.groups.max() >= scenario.network.tasks:
        raise ScenarioError(
            f"the data has {groups} groups numbered up to {members.groups.max()} but the scenario only"
            f" {scenario.network.tasks} tasks; set network.tasks = {members.groups.max() + 1}"
        )
    if scenario.clustering.rule == "oracle" and members.groups.min() < 0:
        raise ScenarioError(
            "clustering.rule is 'oracle' but the true groups are not known; give them, or choose another rule"
        )
