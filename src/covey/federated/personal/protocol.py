"""The interface of personal models: what a device makes of its own model and of the one that it received.

Personal models are a part (`covey.parts.PERSONALS`): a class that is constructed with the scenario of a run. `run` is
called where the samples are. Its result stays there: it is not uploaded, aggregated or announced, so that it needs no
noise and costs no privacy. A part with `uploads` is trained by local training instead, which is `training` then: it
starts from the user's own model, its uploads are charged as always, and what it keeps stays on the device. That a
simulation measures the accuracy of either is a measurement by the experimenter, which no epsilon covers.

A part is stateless: `run` depends on its argument alone, and all that a user remembers is its personal model. Objects
are neither saved with a run nor shared by worker processes, so that what `run` kept in one would change results by the
number of workers and at resume. One whose attributes `run` changes in the first round is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from covey.errors import ScenarioError
from covey.federated.losses import Loss, loss_of
from covey.federated.training import LocalTraining
from covey.scenario import Scenario

Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]

#: Keys of [training] that are about personal models alone.
OPTIONS = ("personal_steps", "personal_batch", "personal_rate", "personal_pull")


@dataclass(frozen=True)
class PersonalProblem:
    """Inputs of one user's personal training in one round.

    module: the network; its current weights do not matter. weights: (D,) the personal model so far, in the first round
    the received one. received: (D,) model of the user's task as it was broadcast. next_batch() draws the next
    `training.personal_batch` of the user's samples, x (n, *shape) and y (n,).
    """

    module: nn.Module
    weights: Weights
    received: Weights
    next_batch: Callable[[], tuple[Tensor, Tensor]]

    @property
    def loss(self) -> Loss:
        """`training.loss`: losses (n,) of single samples, of the module's outputs (n, classes) and classes y (n,)."""
        return loss_of(self.module)


class Personal(ABC):
    """Base of all personal models; needs: see `covey.parts.NEEDS`. Without `trains` there are none.

    uploads: whether local training starts from the model and makes the next one, in rounds in which the user is served;
    `run` then gives it back as it is. options: keys of `OPTIONS` that it reads, others are refused.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"personal_models"})
    trains: ClassVar[bool] = True
    uploads: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset(OPTIONS)

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        training = scenario.training
        for key in OPTIONS:
            if key not in self.options and getattr(training, key) != type(training).model_fields[key].default:
                raise ScenarioError(
                    f"training.{key} is {getattr(training, key)}, but training.personal is '{training.personal}', which"
                    f" does not use it; put it back with training.{key}=default"
                )

    def refuse_divergence(self, rate: str) -> None:
        """Refuse a pull that, at the step size of the key `rate`, alone moves weights farther away in every step."""
        training = self.scenario.training
        step, pull = getattr(training, rate), training.personal_pull
        if step * pull >= 2.0:
            raise ScenarioError(
                f"training.personal_pull is {pull:g} at a training.{rate} of {step:g}, where local steps swing ever"
                " farther past the task's model; their product must be below 2: set training.personal_pull to"
                f" {1.0 / step:g} or less"
            )

    def training(self, local: LocalTraining) -> LocalTraining:
        """The local training of runs with these personal models, from the one that the scenario names."""
        return local

    @abstractmethod
    def run(self, problem: PersonalProblem) -> Weights:
        """(D,) float32, the personal model after the round; `run` changes nothing of this object."""

    @abstractmethod
    def passes(self, samples: Ints) -> Ints:
        """(n,) forward-plus-backward passes of single samples in a round, for users with `samples` (n,)."""


class NoPersonal(Personal):
    """Users have the model of their task only."""

    needs: ClassVar[frozenset[str]] = frozenset()
    trains: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset()

    def run(self, problem: PersonalProblem) -> Weights:
        """The received model."""
        return problem.received

    def passes(self, samples: Ints) -> Ints:
        """(n,) zeros."""
        return np.zeros_like(samples)
