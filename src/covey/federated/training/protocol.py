"""The interface of local training: the update a user computes, its maximal length, and its privacy cost.

Local training is a part (`covey.parts.LOCAL_TRAININGS`): a class that is constructed with the scenario of a run. `run`
is called where the samples are, on the device or in a worker process; everything else is public. Whatever depends on
samples leaves `run` only after clipping and noise, and `releases` must cover it.

A part is stateless: `run` depends on its argument alone, and momentum and the like begin anew in every round. Objects
are neither saved with a run nor shared by worker processes, so that what `run` kept in one would change results by the
number of workers and at resume. One whose attributes `run` changes in the first round is refused.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from covey.errors import ScenarioError
from covey.federated.losses import Loss, loss_of
from covey.federated.steps import LocalUpdate
from covey.privacy import GaussianReleases
from covey.scenario import Scenario
from covey.scenario.schema import LOCAL_OPTIONS, Privacy

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LocalProblem:
    """Inputs of one user's local training in one round.

    module: the network; its current weights do not matter. weights: (D,) initial weights, as received. clip: norm to
    which every sample's gradient is clipped; noise_std: of the noise on a sum of clipped gradients, 0 for none.
    samples: public number of the user's samples; size: that of a batch, by which sums are divided. next_batch() draws
    the next batch, x (n, *shape) and y (n,): those of one shuffled pass do not overlap, and a new pass begins when
    fewer than a batch are left. poisson_batch() draws each sample with probability size / samples, independently, and
    may be empty. normals(steps) draws standard normal values, (steps, D); call it once. own: (D,) model of the user's
    own that its uploads are made from (`covey.federated.personal`), if it has one by now.
    """

    module: nn.Module
    weights: Weights
    clip: float
    noise_std: float
    learning_rate: float
    samples: int
    size: int
    next_batch: Callable[[], tuple[Tensor, Tensor]]
    poisson_batch: Callable[[], tuple[Tensor, Tensor]]
    normals: Callable[[int], Floats]
    own: Weights | None = None

    @property
    def loss(self) -> Loss:
        """`training.loss`: losses (n,) of single samples, of the module's outputs (n, classes) and classes y (n,)."""
        return loss_of(self.module)


class LocalTraining(ABC):
    """Base of all local training.

    needs: see `covey.parts.NEEDS`; options: keys of `covey.scenario.schema.LOCAL_OPTIONS` that it reads, others are
    refused; units: values of `privacy.unit` that its releases are right for; withholds: needs of other parts that runs
    with it cannot meet, and why.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    options: ClassVar[frozenset[str]] = frozenset()
    units: ClassVar[frozenset[str]] = frozenset({"sample"})
    withholds: ClassVar[Mapping[str, str]] = {}
    _factor: float = 1.0

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._refuse_ignored()

    def _refuse_ignored(self) -> None:
        """Refuse what this training would ignore."""
        training, unit = self.scenario.training, self.scenario.privacy.unit
        for key in LOCAL_OPTIONS:
            if key not in self.options and getattr(training, key) != type(training).model_fields[key].default:
                raise ScenarioError(
                    f"training.{key} is {getattr(training, key)}, but training.local is '{training.local}', which does"
                    f' not use it; set training.local = "sgd", or put it back with training.{key}=default'
                )
        if unit not in self.units:
            raise ScenarioError(
                f"privacy.unit is '{unit}', but training.local is '{training.local}', which does not protect that;"
                ' set training.local = "sgd", or put it back with privacy.unit=default'
            )

    @property
    def carries_over(self) -> bool:
        """Whether an upload holds noised sums of the user's earlier rounds, so that it tells as much as they all do."""
        return False

    @property
    def learning_rate(self) -> float:
        """Learning rate of the round that `at` chose; of the first round, where it did not."""
        return self.scenario.training.learning_rate * self._factor

    def at(self, round: int) -> Self:
        """This training in a round, counted from 0: with the learning rate that `training.schedule` gives it."""
        factor = schedule_factor(self.scenario.training.schedule, round, self.scenario.training.rounds)
        if factor == self._factor:
            return self
        bound = copy.copy(self)
        bound._factor = factor
        return bound

    @abstractmethod
    def run(self, problem: LocalProblem) -> LocalUpdate:
        """The user's new weights, and clipping statistics; it changes nothing of this object."""

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
        return np.asarray(self.learning_rate * noise_std / self.passes(samples))

    @abstractmethod
    def passes(self, samples: Ints) -> Ints:
        """(n,) forward-plus-backward passes of single samples in the training of users with `samples` (n,)."""


def least_noise(privacy: Privacy, training: LocalTraining, clip: Floats, samples: Ints) -> GaussianReleases:
    """An upload of each of n users with the noise of a user alone in its task: for plans; clip, samples: (n,)."""
    std = np.zeros(len(samples))
    if privacy.noise != "off":
        std = np.maximum(privacy.n_min / samples, np.sqrt(privacy.v_max))
    return training.releases(clip, std, samples)


def schedule_factor(schedule: str, round: int, rounds: int) -> float:
    """What `training.schedule` multiplies the learning rate by in a round, counted from 0, of so many `rounds`.

    A run that is longer than planned keeps the factor of the last round.
    """
    progress = min(round, rounds - 1) / rounds
    if schedule == "cosine":
        return (1.0 + math.cos(math.pi * progress)) / 2.0
    if schedule == "step":
        return 1.0 if progress < 0.5 else 0.1 if progress < 0.75 else 0.01
    return 1.0
