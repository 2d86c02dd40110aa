"""The interface of personal models: what a device makes of its own model and of the one that it received.

Personal models are a part (`covey.parts.PERSONALS`): a class that is constructed with the scenario of a run. `run` is
called where the samples are. Its result stays there: it is not uploaded, aggregated or announced, so that it needs no
noise and costs no privacy. That a simulation measures its accuracy is a measurement by the experimenter, which no
epsilon covers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from covey.federated.losses import Loss, loss_of
from covey.scenario import Scenario

Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


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
    """Base of all personal models; needs: see `covey.parts.NEEDS`. Without `trains` there are none."""

    needs: ClassVar[frozenset[str]] = frozenset({"personal_models"})
    trains: ClassVar[bool] = True

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    @abstractmethod
    def run(self, problem: PersonalProblem) -> Weights:
        """(D,) float32, the personal model after the round."""

    @abstractmethod
    def passes(self, samples: Ints) -> Ints:
        """(n,) forward-plus-backward passes of single samples in a round, for users with `samples` (n,)."""


class NoPersonal(Personal):
    """Users have the model of their task only."""

    needs: ClassVar[frozenset[str]] = frozenset()
    trains: ClassVar[bool] = False

    def run(self, problem: PersonalProblem) -> Weights:
        """The received model."""
        return problem.received

    def passes(self, samples: Ints) -> Ints:
        """(n,) zeros."""
        return np.zeros_like(samples)
