"""The interface of aggregations: new models from the accepted uploads.

An aggregation is a part (`covey.parts.AGGREGATIONS`): a class that is constructed with the scenario of a run. It sees
uploads only after noise was added, so it is post-processing and costs no privacy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.arrays import make_read_only
from covey.errors import ScenarioError
from covey.federated.aggregation.server import Memory, forgotten, moved_by
from covey.scenario import Scenario

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]

#: Keys of [training] that are about what a task's model makes of its aggregated movement.
OPTIONS = ("server", "server_rate", "server_momentum")


@dataclass(frozen=True)
class Accepted:
    """The accepted uploads of a round, in arrays that can be read, not written.

    uploads: (n, D) new weights of each user; task, station, samples: (n,) of these users; models: (K, D) before the
    round; stations: B.
    """

    uploads: Weights
    task: Ints
    station: Ints
    samples: Ints
    models: Weights
    stations: int

    def __post_init__(self) -> None:
        # Uploads may be those that rules and starts are given after the aggregation.
        make_read_only(self)


class Aggregation(ABC):
    """Base of all aggregations.

    needs: see `covey.parts.NEEDS`; anything but a weighted sum needs individual uploads, which masks hide.
    weighted_mean: whether the `combine` of this very class is the mean weighted by samples. Masks carry out that mean
    and nothing else, without calling `combine`; a subclass with a `combine` of its own has to declare it again.
    options: keys of `OPTIONS` that `advance` reads, others are refused; a subclass with an `advance` of its own reads
    none unless it declares them again.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"single_uploads"})
    weighted_mean: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset(OPTIONS)

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._refuse_ignored()

    def _refuse_ignored(self) -> None:
        """Refuse what `advance` would ignore."""
        definer = next(kind for kind in type(self).__mro__ if {"advance", "options"} & set(vars(kind)))
        training, read = self.scenario.training, vars(definer).get("options", frozenset())
        for key in OPTIONS:
            if key not in read and getattr(training, key) != type(training).model_fields[key].default:
                raise ScenarioError(
                    f"training.{key} is {getattr(training, key)}, but training.aggregation is '{training.aggregation}',"
                    f" whose `advance` does not use it; put it back with training.{key}=default, or declare"
                    f' options = frozenset({{"{key}"}}) in the class if it does'
                )

    @property
    def works_under_masks(self) -> bool:
        """Whether masked sums give what `combine` would."""
        definer = next(kind for kind in type(self).__mro__ if "combine" in vars(kind))
        return bool(vars(definer).get("weighted_mean", False))

    @abstractmethod
    def combine(self, accepted: Accepted) -> Weights:
        """New models (K, D); a task without uploads keeps its model bit for bit."""

    def advance(self, before: Weights, combined: Weights, trained: Bools, memory: Memory) -> tuple[Weights, Memory]:
        """New models (K, D), and what is remembered for the next round, from what was `combined`, here or under masks.

        `trained` (K,): tasks with uploads; all others keep their model bit for bit. memory: arrays of numbers by name,
        saved with the run, empty before the first round. By default this is `training.server`.
        """
        return moved_by(self.scenario.training, before, combined, trained, memory)

    def forget(self, memory: Memory, replaced: Bools) -> Memory:
        """The memory after stations `replaced` (K,) models by others, as when they offer one to users."""
        return forgotten(memory, replaced)
