"""What local training is: what a user computes from its samples, how far that can lead, and what it costs.

Local training is a part (`covey.parts.LOCAL_TRAININGS`): a class that is made with the scenario of a run. `run` is
called where the samples are, on the device or in a worker process; the rest is public. Whatever depends on samples
leaves `run` only after clipping and noise, and `rho` must cover it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from covey.federated.steps import LocalUpdate
from covey.scenario import Scenario

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LocalProblem:
    """What one user trains on in one round.

    module: computes with whatever weights are loaded into it. weights: (D,) to start from. clip: norm to which every
    sample's gradient is clipped; noise_std: of the noise on a sum of clipped gradients, 0 for none. size: public number
    of samples in a batch, by which sums are divided. next_batch() draws the next batch, x (n, *shape) and y (n,);
    normals(steps) draws standard normal values, (steps, D), to be asked for once.
    """

    module: nn.Module
    weights: Weights
    clip: float
    noise_std: float
    learning_rate: float
    size: int
    next_batch: Callable[[], tuple[Tensor, Tensor]]
    normals: Callable[[int], Floats]


class LocalTraining(ABC):
    """Base of all local training; needs: see `covey.parts.NEEDS`."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    @abstractmethod
    def run(self, problem: LocalProblem) -> LocalUpdate:
        """The user's new weights, and what clipping met."""

    @abstractmethod
    def rho(self, clip: Floats, noise_std: Floats) -> Floats:
        """Cost (n,) in zCDP of one upload of users that clip at `clip` (n,) and add noise of `noise_std` (n,)."""

    @abstractmethod
    def reach(self, clip: Floats, samples: Ints, noise_std: Floats, length: int) -> Floats:
        """(n,) how far the upload of an honest user can be from where it started; `length`: weights D of a model."""

    def upload_noise(self, noise_std: Floats, samples: Ints) -> Floats:
        """(n,) standard deviation of the noise on each weight of an upload; 0 where `noise_std` (n,) is 0.

        This is that of one step; training whose uploads carry other noise says so here.
        """
        return np.asarray(self.scenario.training.learning_rate * noise_std / self.passes(samples))

    @abstractmethod
    def passes(self, samples: Ints) -> Ints:
        """(n,) forward-plus-backward passes of one sample that training takes users of `samples` (n,)."""
