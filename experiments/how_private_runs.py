"""The runs of the study of accuracy and privacy: data, settings that are tried, and how the best are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from covey import UserData, simulate
from covey.evaluation.central import Central
from covey.figures.cells import Cell, scenario_of
from covey.jobs import Record, Values
from covey.parts import LOCAL_TRAININGS
from covey.scenario import Scenario
from covey.simulation.exposure import single_upload, under_aggregation
from covey.simulation.run import user_data
from covey.simulation.target import with_target

#: Settings are chosen on seeds from here on,
DEVELOPMENT = 1000
#: and shown are seeds from here on.
JUDGED = 9000
#: of digits from here on: those before were looked at with a target that some users went beyond.
AGAIN = 9500
EPSILONS = (1.0, 2.0, 4.0, 8.0)
#: Stands for no noise at all.
NONE = 0.0
UNITS = ("sample", "device")
#: Who the noise is for: somebody who sees single uploads, or only sums of several users.
SIGHTS = ("single", "sums")


class Data(NamedTuple):
    """A data set as this study deals it: a scenario with overrides.

    minimum: fewest uploads in a sum that is opened; seeds: number of judged ones, from
    `first` on. sample, device, exact: settings that are tried
    with noise in either unit, and without noise.
    """

    title: str
    scenario: str
    overrides: tuple[str, ...]
    minimum: int
    seeds: int
    first: int
    sample: tuple[str, ...]
    device: tuple[str, ...]
    exact: tuple[str, ...]


#: Users do not take turns, as when the cells were computed; devices that are told their group never do.
_NO_TURNS = ("clustering.turns=false",)
#: A weight that these runs do not use: everybody has a block.
_WEIGHT = "reward.leakage_weight=2e7"
_TWELVE = ("network.users=12", "network.blocks=6", _WEIGHT)


def _steps(rounds: Iterable[int], rates: Iterable[float], *others: str) -> tuple[str, ...]:
    return tuple(
        " ".join((f"training.rounds={count}", f"training.learning_rate={rate}", *others))
        for count in rounds
        for rate in rates
    )


_FEATURES = (*_steps((10, 20), (5.0, 10.0)), *_steps((40,), (2.5, 5.0)))
_WHOLE = _steps((2, 5, 15), (5.0,), "training.steps=5", "training.clip=3")
_FREE = tuple(
    setting + fine
    for setting in (*_steps((60,), (5.0, 10.0)), *_steps((60,), (5.0,), "training.steps=5"))
    for fine in ("", " data.transform=hog_fine")
)
#: Five local steps of 100 users on all samples and 19,000 weights or more take minutes a run.
_QUICK_FREE = tuple(setting for setting in _FREE if "steps=5" not in setting)
DATA = {
    "digits": Data(
        "digits, 12 users of 60 to 90 samples", "quick", ("network.blocks=6",), 2, 10, AGAIN,
        _steps((15, 30, 60), (0.15, 0.3, 0.6)), _steps((2, 5, 15), (0.3,), "training.steps=5", "training.clip=3"),
        _steps((60,), (0.6, 2.0)),
    ),
    "femnist_12": Data(
        "FEMNIST, 12 users of 300 samples", "femnist",
        (*_TWELVE, "data.samples_min=300", "data.samples_max=300", "data.test_samples=40", "data.concentration=1000"),
        2, 10, JUDGED, _FEATURES, _WHOLE, _FREE,
    ),
    "femnist_100": Data(
        "FEMNIST, 100 users of 70 samples", "femnist", (_WEIGHT,), 13, 10, JUDGED, _FEATURES, _WHOLE, _QUICK_FREE
    ),
    "cifar10_12": Data(
        "CIFAR-10, 12 users of 400 samples", "cifar10",
        (*_TWELVE, "data.test_samples=100", "data.concentration=100",
         "data.mixes=[{0=4,1=1},{1=3,2=1,4=1},{5=2,6=2,7=1},{8=3,9=2}]"),
        2, 5, JUDGED, _FEATURES, _WHOLE, _FREE,
    ),
    "cifar10_100": Data(
        "CIFAR-10, 100 users of 400 samples", "cifar10", (_WEIGHT,), 13, 5, JUDGED, _FEATURES, _WHOLE, _QUICK_FREE
    ),
}  # fmt: skip


@lru_cache(maxsize=1)
def _data(scenario: str, overrides: tuple[str, ...], seed: int) -> UserData:
    """The users' data, computed once for all settings with the same seed."""
    return user_data(scenario_of(scenario, overrides), seed)


def _of(data: str, seed: int, setting: str = "") -> UserData:
    found = DATA[data]
    return _data(found.scenario, (*found.overrides, *(w for w in setting.split() if w.startswith("data."))), seed)


@dataclass(frozen=True)
class PrivateRun(Cell):
    """A run under `greedy` with one setting; `epsilon` 0 stands for no noise."""

    data: str = ""
    unit: str = ""
    sight: str = ""
    epsilon: float = NONE
    groups: str = ""
    setting: str = ""
    kind: ClassVar[str] = "how_private"
    pinned: ClassVar[tuple[str, ...]] = _NO_TURNS

    @property
    def label(self) -> str:
        """Data, what is asked, and seed."""
        return f"{self.data} {self.unit} {self.sight} {self.epsilon:g} {self.groups} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Accuracy and clustering accuracy of the last round, and what was spent."""
        data = _of(self.data, self.seed, self.setting)
        scenario = self._noised(data)
        history = simulate(_of_features(scenario), "greedy", seed=self.seed, data=data)
        last, training = history.records[-1], LOCAL_TRAININGS.build(scenario.training.local, scenario)
        values: dict[str, Any] = {
            "accuracy": last.accuracy,
            "clustering_accuracy": last.clustering_accuracy,
            "epsilon_max": last.epsilon_max,
            "epsilon_upload": (single_upload(history, training) or {}).get("epsilon_max"),
            "served": float(np.mean([record.served for record in history.records])),
        }
        if self.sight == "sums":
            history.scenario = _with(history.scenario, security={"mode": "masked"})
            values["epsilon_sums"] = (under_aggregation(history, training) or {})["epsilon_max"]
        return values

    def _noised(self, data: UserData) -> Scenario:
        """The scenario; where only sums are seen, with a part of the noise that the target takes."""
        scenario = self.loaded
        if self.sight == "single" or self.epsilon == NONE:
            return scenario
        cap, fewest = with_target(scenario, data.samples).privacy.v_max, DATA[self.data].minimum
        return _with(
            scenario,
            privacy={"target_epsilon": None, "v_max": cap / fewest, "n_min": 0.0},
            # The same bits as with masks, a hundred times faster.
            security={"mode": "blind", "minimum": fewest},
        )


def _of_features(scenario: Scenario) -> Scenario:
    """The scenario for data that its transform has been applied to."""
    return scenario.model_copy(update={"data": scenario.data.model_copy(update={"transform": "none"})})


def _with(scenario: Scenario, **sections: Mapping[str, Any]) -> Scenario:
    """The scenario with other values in some sections."""
    table = scenario.model_dump(mode="json")
    for section, values in sections.items():
        table[section] = {**table[section], **values}
    return Scenario.model_validate(table)


@dataclass(frozen=True)
class Lines(Cell):
    """The two lines: the most frequent class, and the network trained centrally without noise."""

    data: str = ""
    kind: ClassVar[str] = "how_private_lines"
    pinned: ClassVar[tuple[str, ...]] = _NO_TURNS

    @property
    def label(self) -> str:
        """Data and seed."""
        return f"{self.data} lines, seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Mean test accuracy of both, weighted by test samples."""
        data = _of(self.data, self.seed)
        weights = np.diff(data.test_offsets)
        history = simulate(_of_features(self.loaded), "greedy", seed=self.seed, data=data, rounds=1)
        central = Central(self.loaded, self.seed)(data)
        return {"majority": history.records[-1].majority, "central": float(np.average(central, weights=weights))}


def run_of(data: str, unit: str, sight: str, epsilon: float, groups: str, setting: str, seed: int) -> PrivateRun:
    """The cell with these names."""
    found = DATA[data]
    noise = f"target_epsilon={epsilon:g}" if epsilon != NONE else "noise=off"
    overrides = (
        *found.overrides,
        "privacy.v_max=default",
        f"privacy.{noise}",
        f"privacy.unit={unit}",
        *setting.split(),
    )
    if groups == "given":
        overrides = (*overrides, "clustering.rule=oracle")
    return PrivateRun(found.scenario, overrides, seed, data, unit, sight, epsilon, groups, setting)


def lines_of(data: str, seed: int) -> Lines:
    """The cell of both lines."""
    return Lines(DATA[data].scenario, DATA[data].overrides, seed, data)


def cases(data: str) -> list[tuple[str, str, float]]:
    """Unit, sight and epsilon of every point of a data set; without noise both are the same."""
    found = [(unit, sight, epsilon) for unit in UNITS for sight in SIGHTS for epsilon in EPSILONS]
    return [("sample", "single", NONE), *found]


def tried(data: str, unit: str, epsilon: float) -> tuple[str, ...]:
    """The settings that are tried for a point."""
    found = DATA[data]
    return found.exact if epsilon == NONE else found.sample if unit == "sample" else found.device


def tuning(data: str, seeds: int) -> list[PrivateRun]:
    """Every setting of every point on development seeds, with given groups."""
    return [
        run_of(data, unit, sight, epsilon, "given", setting, seed)
        for seed in range(DEVELOPMENT, DEVELOPMENT + seeds)
        for unit, sight, epsilon in cases(data)
        for setting in tried(data, unit, epsilon)
    ]


def best(records: Iterable[Record]) -> dict[tuple[str, str, str, float], str]:
    """The setting of highest mean accuracy on development seeds, by data, unit, sight and epsilon."""
    found: dict[tuple[str, str, str, float], dict[str, list[float]]] = {}
    for record in records:
        job = record.job
        if job["seed"] < JUDGED and job["groups"] == "given":
            key = (job["data"], job["unit"], job["sight"], float(job["epsilon"]))
            if job["setting"] in tried(job["data"], job["unit"], float(job["epsilon"])):
                found.setdefault(key, {}).setdefault(job["setting"], []).append(float(record.values["accuracy"]))
    return {key: max(sorted(by), key=lambda setting: float(np.mean(by[setting]))) for key, by in found.items()}


def judged(data: str, chosen: Mapping[tuple[str, str, str, float], str]) -> list[Cell]:
    """Every point with its chosen setting, groups found and given, and both lines, seed by seed."""
    cells: list[Cell] = []
    for seed in range(DATA[data].first, DATA[data].first + DATA[data].seeds):
        cells.append(lines_of(data, seed))
        for unit, sight, epsilon in cases(data):
            if (data, unit, sight, epsilon) in chosen:
                setting = chosen[data, unit, sight, epsilon]
                # The longest runs, and given groups would change nothing: found ones are right in all of them.
                kinds = ("found",) if epsilon == NONE else ("found", "given")
                cells += [run_of(data, unit, sight, epsilon, groups, setting, seed) for groups in kinds]
    return cells
