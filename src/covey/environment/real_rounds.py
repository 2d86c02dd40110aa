"""N networks that play real rounds of clustered federated learning, with trained models."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np

from covey.allocation import leakage
from covey.arrays import BoolArray, FloatArray, IntArray
from covey.data import load_dataset
from covey.data.transforms.protocol import transformed_shape
from covey.environment.known_tasks import check_tasks_are_known
from covey.environment.reward import Outcome
from covey.federated import build_model, count_weights
from covey.network import NetworkLimits, Observation, Plan
from covey.scenario import Scenario
from covey.simulation import Simulation
from covey.simulation.own_parts import faults_named
from covey.simulation.round import begin_round, finish_round
from covey.simulation.stages import Finished, Turn


class RealRounds:
    """N networks whose rounds are those of `covey.simulate` with the same seeds and `workers` processes each.

    Users that could not afford a release are unavailable from then on. A context manager; `close`
    ends the processes, and `reset` starts new ones.
    """

    def __init__(self, scenario: Scenario, count: int = 1, workers: int = 1) -> None:
        if count < 1:
            raise ValueError(f"count is {count}; at least 1 network is played")
        self.scenario = scenario
        self.count = count
        self._workers = workers
        dataset = load_dataset(scenario.data, groups=scenario.groups, seed=0)
        model = build_model(scenario.model, transformed_shape(scenario.data, dataset.shape), len(dataset.classes))
        check_tasks_are_known(scenario)
        self.limits = NetworkLimits.of(scenario, count_weights(model))
        self._simulations: list[Simulation] = []
        self._turns: list[Turn] = []
        self._observation: Observation | None = None

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start one network per seed."""
        if len(seeds) != self.count:
            raise ValueError(f"{len(seeds)} seeds for {self.count} networks; give one seed for each")
        self.close()
        with ExitStack() as started:
            simulations = [
                started.enter_context(Simulation(self.scenario, seed=seed, workers=self._workers)) for seed in seeds
            ]
            self._turns = [_begun(simulation) for simulation in simulations]
            started.pop_all()
        self._simulations = simulations
        self._observation = self._look()
        return self._observation

    @property
    def observation(self) -> Observation:
        """The current observation of the stations."""
        self._started()
        assert self._observation is not None
        return self._observation

    @property
    def positions_m(self) -> tuple[FloatArray, FloatArray]:
        """Stations (N, B, 2) and users (N, U, 2) in metres."""
        simulations = self._started()
        return (
            np.stack([simulation.world.stations_m for simulation in simulations]),
            np.stack([simulation.state.positions_m for simulation in simulations]),
        )

    @property
    def groups(self) -> IntArray:
        """True groups (N, U), for measurement and rendering only."""
        return np.stack([simulation.world.groups for simulation in self._started()])

    @property
    def done(self) -> bool:
        """Whether the last round has been played."""
        return self._observation is not None and self._observation.round >= self.limits.rounds

    def step(self, selected: BoolArray) -> Outcome:
        """Play a round in which the stations select these users, (N, B, U)."""
        simulations = self._started()
        before = [_loss(*network) for network in zip(simulations, self._turns, strict=True)]
        finished = [
            _finished(simulation, turn, chosen)
            for simulation, turn, chosen in zip(simulations, self._turns, selected, strict=True)
        ]
        after = [one.record.users.loss for one in finished]
        outcome = _outcome(finished, self._turns, np.stack(before), np.stack(after))
        for simulation, one in zip(simulations, finished, strict=True):
            simulation.state = one.state
        self._turns = [_begun(simulation) for simulation in simulations]
        self._observation = self._look()
        return outcome

    def close(self) -> None:
        """End the processes of all networks; idempotent."""
        while self._simulations:
            self._simulations.pop().close()
        self._turns, self._observation = [], None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _started(self) -> list[Simulation]:
        if not self._simulations:
            raise ValueError("the networks have not been started; call reset first")
        return self._simulations

    def _look(self) -> Observation:
        seen, last = Observation.stack([turn.observation for turn in self._turns]), self._observation
        kept = np.zeros(seen.kept.shape, dtype=bool) if last is None else last.identities == seen.identities
        return replace(seen, kept=kept)


def _begun(simulation: Simulation) -> Turn:
    with faults_named(simulation.world, f"in round {simulation.state.round + 1}"):
        return begin_round(simulation.world, simulation.state)


def _finished(simulation: Simulation, turn: Turn, selected: BoolArray) -> Finished:
    with faults_named(simulation.world, f"in round {simulation.state.round + 1}"):
        return finish_round(simulation.world, turn, selected)


def _loss(simulation: Simulation, turn: Turn) -> FloatArray:
    """(U,) loss of each user on its task's model before the round."""
    world = simulation.world
    return np.asarray(world.fleet.evaluate(turn.identification.identities).train_loss_sum / world.samples)


def _outcome(finished: Sequence[Finished], turns: Sequence[Turn], before: FloatArray, after: FloatArray) -> Outcome:
    plan = Plan.stack([one.decision.plan for one in finished])
    noise_std = np.stack([one.decision.noise_std for one in finished])
    samples = np.stack([turn.observation.samples for turn in turns])
    return Outcome.of(plan, noise_std=noise_std, loss_before=before, loss=after, leakage=leakage(samples, noise_std))
