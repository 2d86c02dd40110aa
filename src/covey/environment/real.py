"""N networks that play real rounds of clustered federated learning: models are trained, nothing is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from covey.association import Observation
from covey.data import load_dataset
from covey.environment.reward import Outcome
from covey.environment.site import Bools, Floats, Ints, View, site_of
from covey.learning import build_model, count_weights
from covey.scenario import Scenario
from covey.simulation import Simulation
from covey.simulation.identification import identify
from covey.simulation.round import advance, aggregate, allocate, broadcast, evaluate, observe, train
from covey.simulation.stages import Decision, Identification


@dataclass(frozen=True)
class _Turn:
    """A network before its stations choose: who announced what, what is seen, and every user's loss (U,)."""

    identification: Identification
    observation: Observation
    loss: Floats


class RealRounds:
    """N networks whose rounds are those of `covey.simulate` with the same seeds and `workers` processes each.

    Users whose privacy budget refused a release are not available from then on. A context manager; `close`
    ends the processes, and `reset` starts anew.
    """

    def __init__(self, scenario: Scenario, count: int = 1, workers: int = 1) -> None:
        if count < 1:
            raise ValueError(f"count is {count}; at least 1 network is played")
        self.scenario = scenario
        self.count = count
        self._workers = workers
        dataset = load_dataset(scenario.data, tasks=scenario.network.tasks, seed=0)
        model = build_model(scenario.model, dataset.shape, len(dataset.classes))
        self.site = site_of(scenario, count_weights(model))
        self._simulations: list[Simulation] = []
        self._turns: list[_Turn] = []
        self._view: View | None = None

    def reset(self, seeds: Sequence[int]) -> View:
        """Start one network per seed."""
        if len(seeds) != self.count:
            raise ValueError(f"{len(seeds)} seeds for {self.count} networks; give one seed for each")
        self.close()
        with ExitStack() as started:
            simulations = [
                started.enter_context(Simulation(self.scenario, seed=seed, workers=self._workers)) for seed in seeds
            ]
            self._turns = [_turn(simulation) for simulation in simulations]
            started.pop_all()
        self._simulations = simulations
        self._view = self._look()
        return self._view

    @property
    def view(self) -> View:
        """What the stations see now."""
        self._started()
        assert self._view is not None
        return self._view

    @property
    def positions_m(self) -> tuple[Floats, Floats]:
        """Stations (N, B, 2) and users (N, U, 2) in metres."""
        simulations = self._started()
        return (
            np.stack([simulation.world.stations_m for simulation in simulations]),
            np.stack([simulation.state.positions_m for simulation in simulations]),
        )

    @property
    def groups(self) -> Ints:
        """True groups (N, U), for measurement and pictures only."""
        return np.stack([simulation.world.groups for simulation in self._started()])

    @property
    def done(self) -> bool:
        """Whether the last round has been played."""
        return self._view is not None and self._view.round >= self.site.rounds

    def step(self, selected: Bools) -> Outcome:
        """Play a round in which the stations select these users, (N, B, U)."""
        simulations = self._started()
        played = [_play(*network) for network in zip(simulations, self._turns, selected, strict=True)]
        outcome = _outcome(
            [decision for decision, _ in played], self._turns, np.stack([loss for _, loss in played]), self.scenario
        )
        self._turns = [_turn(simulation) for simulation in simulations]
        self._view = self._look()
        return outcome

    def close(self) -> None:
        """End the processes of all networks; may be called again."""
        while self._simulations:
            self._simulations.pop().close()
        self._turns, self._view = [], None

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

    def _look(self) -> View:
        seen, last = [turn.observation for turn in self._turns], self._view
        identities = np.stack([observation.identities for observation in seen])
        return View(
            round=seen[0].round,
            identities=identities,
            distances_m=np.stack([observation.distances_m for observation in seen]),
            gains=np.stack([observation.gains for observation in seen]),
            samples=np.stack([simulation.world.samples for simulation in self._simulations]),
            available=np.stack([observation.available for observation in seen]),
            kept=np.zeros(identities.shape, dtype=bool) if last is None else last.identities == identities,
        )


def _turn(simulation: Simulation) -> _Turn:
    """The steps of a round up to the stations' choice."""
    world, state = simulation.world, simulation.state
    broadcast(world, state)
    identification = identify(world, state)
    evaluation = world.fleet.evaluate(identification.identities)
    return _Turn(
        identification=identification,
        observation=observe(world, state, identification.identities),
        loss=evaluation.train_loss_sum / world.samples,
    )


def _play(simulation: Simulation, turn: _Turn, selected: Bools) -> tuple[Decision, Floats]:
    """The steps of a round from the stations' choice (B, U) on: what was decided, and every user's loss (U,)."""
    world, state = simulation.world, simulation.state
    identification, observation = turn.identification, turn.observation
    identities = identification.identities
    decision = allocate(world, state, identification, observation, selected & observation.available)
    uploads = train(world, state, identities, decision)
    aggregation = aggregate(world, state, identities, decision, uploads)
    evaluation = evaluate(world, state, aggregation.models, identities)
    simulation.state = advance(world, state, identification, decision, uploads, aggregation)
    return decision, evaluation.train_loss_sum / world.samples


def _outcome(decisions: Sequence[Decision], turns: Sequence[_Turn], loss: Floats, scenario: Scenario) -> Outcome:
    plans = [decision.plan for decision in decisions]
    station = np.stack([plan.station for plan in plans])
    noise_std = np.stack([decision.noise_std for decision in decisions])
    samples = np.stack([turn.observation.samples for turn in turns])
    # Not priced where noise is off, as in the account of a run.
    priced = (station >= 0) & (scenario.privacy.noise != "off")
    return Outcome(
        station=station,
        block=np.stack([plan.block for plan in plans]),
        active=np.stack([plan.active for plan in plans]),
        violators=np.stack([plan.violators for plan in plans]),
        kinds={kind: np.stack([plan.kinds[kind] for plan in plans]) for kind in plans[0].kinds},
        station_violations=np.stack([plan.station_violations for plan in plans]),
        noise_std=noise_std,
        loss_before=np.stack([turn.loss for turn in turns]),
        loss=loss,
        leakage=np.divide(1.0, (samples * noise_std) ** 2, out=np.zeros(station.shape), where=priced),
    )
