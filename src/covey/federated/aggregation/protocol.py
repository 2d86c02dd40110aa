"""What an aggregation is: new models from the uploads that stations let in.

An aggregation is a part (`covey.parts.AGGREGATIONS`): a class that is made with the scenario of a run. It sees uploads
only after noise, so that nothing it does costs privacy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.scenario import Scenario

Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Accepted:
    """The uploads of a round that were let in.

    uploads: (n, D) new weights of each user; task, station, samples: (n,) of these users; models: (K, D) before the
    round; stations: B.
    """

    uploads: Weights
    task: Ints
    station: Ints
    samples: Ints
    models: Weights
    stations: int


class Aggregation(ABC):
    """Base of all aggregations.

    needs: see `covey.parts.NEEDS`; all but sums, which masks allow, need single uploads.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"single_uploads"})

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    @abstractmethod
    def combine(self, accepted: Accepted) -> Weights:
        """New models (K, D); a task without uploads keeps its model bit for bit."""
