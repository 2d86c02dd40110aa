"""The interface of local training: the update a user computes, its maximal length, and its privacy cost.

Local training is a part (`covey.parts.LOCAL_TRAININGS`): a class that is constructed with the scenario of a run. `run`
is called where the samples are, on the device or in a worker process; everything else is public. Whatever depends on
samples leaves `run` only after clipping and noise, and `releases` must cover it.
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
from covey.privacy import GaussianReleases
from covey.scenario import Scenario
from covey.scenario.schema import Privacy

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LocalProblem:
    """Inputs of one user's local training in one round.

    module: the network; its current weights do not matter. weights: (D,) initial weights. clip: norm to which every
    sample's gradient is clipped; noise_std: of the noise on a sum of clipped gradients, 0 for none. size: public number
    of samples in a batch, by which sums are divided. next_batch() draws the next batch, x (n, *shape) and y (n,);
    normals(steps) draws standard normal values, (steps, D); call it once.
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
    """Base of all local training.

    needs: see `covey.parts.NEEDS`. units: the values of `privacy.unit` for which `releases` is right.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    units: ClassVar[frozenset[str]] = frozenset({"sample"})

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    @abstractmethod
    def run(self, problem: LocalProblem) -> LocalUpdate:
        """The user's new weights, and clipping statistics."""

    @abstractmethod
    def releases(self, clip: Floats, noise_std: Floats, samples: Ints) -> GaussianReleases:
        """What n users release in an upload: they clip at `clip`, add noise of `noise_std`, hold `samples`, (n,)."""

    def rho(self, clip: Floats, noise_std: Floats, samples: Ints) -> Floats:
        """zCDP cost rho (n,) of one upload of each of these users."""
        return self.releases(clip, noise_std, samples).rho

    @abstractmethod
    def reach(self, clip: Floats, samples: Ints, noise_std: Floats, length: int) -> Floats:
        """(n,) largest distance between an honest user's upload and its initial weights; `length`: weights D."""

    def upload_noise(self, noise_std: Floats, samples: Ints) -> Floats:
        """(n,) standard deviation of the noise on each weight of an upload; 0 where `noise_std` (n,) is 0.

        This is that of one step; training whose uploads carry other noise says so here.
        """
        return np.asarray(self.scenario.training.learning_rate * noise_std / self.passes(samples))

    @abstractmethod
    def passes(self, samples: Ints) -> Ints:
        """(n,) forward-plus-backward passes of single samples in the training of users with `samples` (n,)."""


def least_noise(privacy: Privacy, training: LocalTraining, clip: Floats, samples: Ints) -> GaussianReleases:
    """An upload of each of n users with the noise of a user alone in its task: for plans; clip, samples: (n,)."""
    std = np.zeros(len(samples))
    if privacy.noise != "off":
        std = np.maximum(privacy.n_min / samples, np.sqrt(privacy.v_max))
    return training.releases(clip, std, samples)
