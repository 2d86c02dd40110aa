"""The kinds of cells: trainings, real runs, surrogate episodes, allocations, optima, bounds, partitions."""

from __future__ import annotations

import copy
import itertools
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from covey.agents.policy import LearnedPolicy, Way, load_policy
from covey.agents.settings import LITERAL, LearnerSettings
from covey.agents.training import Trainer
from covey.agents.training_files import trained_policy
from covey.allocation import JointProblem, block_coordinate_descent, sequential_allocation
from covey.association import Policy, get_policy
from covey.environment import Learning, rewards, vector_env
from covey.evaluation import compare
from covey.evaluation.bound_runs import play_and_measure
from covey.figures.cells import Cell, policy_file
from covey.jobs import Values
from covey.scenario import PAPER_START
from covey.seeding import generator
from covey.simulation import Simulation, simulate
from covey.simulation.run import user_data

#: Columns of a training that figures use, one value per epoch.
_TRAINING_COLUMNS = (
    "epsilon", "reward", "reward_std", "reward_without_penalty", "violators", "violating_rounds", "served",
    "alone_reward", "alone_violators", "guarded_reward",
)  # fmt: skip
#: Columns of a run that figures use, one value per round.
_RUN_COLUMNS = (
    "loss", "test_loss", "accuracy", "clustering_accuracy", "adjusted_rand_index", "served", "violators", "leakage",
    "reward", "reward_without_penalty", "objective", "delay_s", "uplink_s", "downlink_s", "compute_s",
    "transmit_energy_j", "compute_energy_j", "epsilon_max", "rho_max",
)  # fmt: skip


@dataclass(frozen=True)
class PaperCell(Cell):
    """A cell with the paper's start, whatever the default is, unless its own overrides say otherwise."""

    pinned: ClassVar[tuple[str, ...]] = PAPER_START


@dataclass(frozen=True)
class Training(PaperCell):
    """Trains a policy; `settings` are pairs of `LearnerSettings`, on top of the paper's loop if `literal`."""

    settings: tuple[tuple[str, Any], ...] = ()
    literal: bool = False
    learning: Learning = "surrogate"
    kind: ClassVar[str] = "training"

    @property
    def on_surrogate(self) -> bool:
        """Whether the policy is trained on the surrogate."""
        return self.learning == "surrogate"

    @property
    def learner(self) -> LearnerSettings:
        """The complete settings."""
        return LearnerSettings.model_validate((LITERAL if self.literal else {}) | dict(self.settings))

    @property
    def label(self) -> str:
        """Short label for progress bars and file names."""
        given = dict(self.settings)
        words = [
            self.scenario,
            self.learner.algorithm,
            "literal" if self.literal else "",
            str(given.get("penalty", "")),
        ]
        return " ".join(word for word in (*words, self.learning, f"seed {self.seed}") if word)

    def compute(self, folder: Path) -> Values:
        """Compute the result."""
        trainer = Trainer(self.loaded, self.learner, seed=self.seed, learning=self.learning)
        while not trainer.done:
            trainer.run_epoch()
        target = policy_file(folder, self)
        target.parent.mkdir(parents=True, exist_ok=True)
        trained_policy(trainer).save(target)
        columns = {name: _listed(row[name] for row in trainer.rows) for name in _TRAINING_COLUMNS}
        return {"columns": columns, "validation": trainer.best_score}


@dataclass(frozen=True)
class RealRun(PaperCell):
    """A run on real rounds under a reference or trained policy."""

    policy: str | Training = "greedy"
    way: Way = "alone"
    kind: ClassVar[str] = "run"

    @property
    def label(self) -> str:
        """Short label for progress bars and file names."""
        return f"{self.scenario} {_policy_label(self.policy)} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Compute the result."""
        history = simulate(self.loaded, _policy(self, folder), seed=self.seed)
        columns = {name: _listed(history.column(name)) for name in _RUN_COLUMNS}
        std, served = history.user_column("noise_std"), history.user_column("station") >= 0
        columns["noise_variance"] = _listed(np.where(served, std**2, 0.0).sum(axis=1))
        columns["user_energy_j"] = _listed(history.user_column("energy_j").sum(axis=1))
        return {"columns": columns, "start": {"loss": history.start["loss"], "accuracy": history.start["accuracy"]}}


@dataclass(frozen=True)
class Played(PaperCell):
    """Episodes of a policy on held-out layouts of the surrogate; the first layout is `seed`."""

    policy: str | Training = "greedy"
    way: Way = "alone"
    layouts: int = 20
    kind: ClassVar[str] = "played"
    on_surrogate: ClassVar[bool] = True

    @property
    def label(self) -> str:
        """Short label for progress bars and file names."""
        return f"{self.scenario} {_policy_label(self.policy)} {self.way} from {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Compute the result."""
        seeds = range(self.seed, self.seed + self.layouts)
        result = compare(self.loaded, {"it": _policy(self, folder)}, seeds, together=16).results[0]
        names = ("reward", "without_penalty", "violators", "served", "final_loss")
        return {name: getattr(result, name).tolist() for name in names} | {"decision_ms": result.decision_ms}


@dataclass(frozen=True)
class Allocated(PaperCell):
    """Sequential allocation and block coordinate descent on the same selections of an episode, timed side by side.

    policy: selects the users; repeats: timings of each method, of which the fastest counts.
    """

    policy: str = "greedy"
    repeats: int = 5
    kind: ClassVar[str] = "allocated"
    on_surrogate: ClassVar[bool] = True

    @property
    def label(self) -> str:
        """Short label for progress bars and file names."""
        return f"{self.scenario} {self.policy} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Compute the result."""
        scenario, chooser = self.loaded, get_policy(self.policy)
        rounds = vector_env(scenario, 1)
        seen = rounds.reset([self.seed])
        columns: dict[str, list[Any]] = {}
        while not rounds.done:
            observation = seen[0]
            selected = chooser(observation, generator(self.seed, "policy", round=seen.round))
            problem = JointProblem(
                gains=observation.gains,
                selected=_one_station_each(selected, observation.gains),
                samples=np.asarray(observation.samples, dtype=np.float64),
                identities=observation.identities,
                radio=observation.limits.radio,
                v_max=scenario.privacy.v_max,
                n_min=scenario.privacy.n_min,
                leakage_weight=scenario.reward.leakage_weight,
                first_station=observation.first_station,
            )
            for name, solve in (("sequential", sequential_allocation), ("descent", block_coordinate_descent)):
                found, seconds = solve(problem), math.inf
                for _ in range(self.repeats):
                    started = time.perf_counter()
                    solve(problem)
                    seconds = min(seconds, time.perf_counter() - started)
                numbers = {
                    "objective": found.objective,
                    "served": int((found.block >= 0).sum()),
                    "passes": found.passes,
                    "ms": 1e3 * seconds,
                }
                for key, value in numbers.items():
                    columns.setdefault(f"{name}_{key}", []).append(value)
            columns.setdefault("selected", []).append(int(problem.selected.sum()))
            rounds.step(selected[None])
            seen = rounds.observation
        return {"columns": columns}


@dataclass(frozen=True)
class Optimum(PaperCell):
    """A policy's choices against the best of all joint choices in the same states; for small networks.

    The value of a choice is the round's reward, with its loss counted for all remaining rounds.
    """

    policy: str | Training = "greedy"
    way: Way = "alone"
    kind: ClassVar[str] = "optimum"
    on_surrogate: ClassVar[bool] = True

    @property
    def label(self) -> str:
        """Short label for progress bars and file names."""
        return f"{self.scenario} {_policy_label(self.policy)} {self.way} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Compute the result."""
        scenario = self.loaded
        choices = _all_choices(scenario.network.stations, scenario.network.users, scenario.network.blocks)
        rounds = vector_env(scenario, len(choices))
        seen = rounds.reset([self.seed] * len(choices))
        policy = _policy(self, folder)
        columns: dict[str, list[float]] = {"best": [], "own": [], "nobody": [], "reward": [], "violators": []}
        while not rounds.done:
            tried = copy.deepcopy(rounds)
            gained = rewards(tried.step(choices), seen.samples, scenario.reward)
            worth = gained.team - gained.cost * (rounds.limits.rounds - 1 - seen.round)
            selected = self._choose(policy, rounds, choices, worth)
            own = rewards(rounds.step(np.repeat(selected[None], len(choices), axis=0)), seen.samples, scenario.reward)
            columns["best"].append(float(worth.max()))
            columns["own"].append(float((own.team - own.cost * (rounds.limits.rounds - 1 - seen.round))[0]))
            columns["nobody"].append(float(worth[0]))
            columns["reward"].append(float(own.team[0]))
            columns["violators"].append(float(own.violators[0]))
            seen = rounds.observation
        return {"columns": columns, "choices": len(choices)}

    def _choose(self, policy: Policy, rounds: Any, choices: Any, worth: Any) -> Any:
        if self.policy == "best":
            return choices[int(worth.argmax())]
        observation = rounds.observation[0]
        return policy(observation, generator(self.seed, "policy", round=observation.round))


@dataclass(frozen=True)
class Bounded(PaperCell):
    """A real run compared with the corrected bound."""

    policy: str = "greedy"
    kind: ClassVar[str] = "bounded"

    @property
    def label(self) -> str:
        """Short label for progress bars and file names."""
        return f"{self.scenario} {self.policy} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Compute the result."""
        with Simulation(self.loaded, self.policy, seed=self.seed) as simulation:
            return play_and_measure(simulation).to_dict()


@dataclass(frozen=True)
class Partitioned(PaperCell):
    """The data partition: class counts (U, classes), true groups and class names."""

    kind: ClassVar[str] = "partitioned"

    @property
    def label(self) -> str:
        """Short label for progress bars and file names."""
        return f"{self.scenario} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Compute the result."""
        data = user_data(self.loaded, self.seed)
        counts = [
            np.bincount(data.y[start:stop], minlength=len(data.classes)).tolist()
            for start, stop in itertools.pairwise(data.offsets.tolist())
        ]
        return {"counts": counts, "groups": data.groups.tolist(), "classes": [str(name) for name in data.classes]}


def _policy_label(policy: str | Training) -> str:
    return (
        policy if isinstance(policy, str) else policy.label.removeprefix(policy.scenario + " ").replace(" seed ", " ")
    )


def _policy(cell: RealRun | Played | Optimum, folder: Path) -> Policy:
    if isinstance(cell.policy, str):
        return get_policy("greedy" if cell.policy == "best" else cell.policy)
    found: LearnedPolicy = load_policy(policy_file(folder, cell.policy), cell.loaded, way=cell.way)
    return found


def _one_station_each(selected: Any, gains: Any) -> Any:
    """(B, U) selections in which a user chosen twice keeps only the station with the strongest gain."""
    chosen_gains = np.where(selected.T, gains, -1.0)
    return selected & (np.arange(len(selected))[:, None] == chosen_gains.argmax(axis=1))


def _all_choices(stations: int, users: int, blocks: int) -> Any:
    """(n, B, U) all joint choices of at most `blocks` users per station; the first is empty."""
    one = [subset for size in range(blocks + 1) for subset in itertools.combinations(range(users), size)]
    choices = np.zeros((len(one) ** stations, stations, users), dtype=bool)
    for index, chosen in enumerate(itertools.product(one, repeat=stations)):
        for station, subset in enumerate(chosen):
            choices[index, station, list(subset)] = True
    return choices


def _listed(values: Any) -> list[float | None]:
    """Numbers for JSON; NaN and infinity become None."""
    return [float(value) if np.isfinite(value) else None for value in values]
