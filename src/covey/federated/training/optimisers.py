"""Optimisers of local steps, on all weights as one vector, and how far noise travels through them.

All of it is post-processing of noised sums: momentum and Adam's averages are made of noised sums alone and start at 0
in every round, weight decay and the proximal term of weights that are made of them and of broadcast models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from covey.scenario import schema

Floats = npt.NDArray[np.float64]

#: Adam's decay rates, and what keeps it from dividing by 0.
_ADAM = (0.9, 0.999)
_EPSILON = 1e-8
#: Weights on which Adam's answer to noise is measured, and steps after which it is continued as a random walk.
_MEASURED_WEIGHTS = 1 << 14
_MEASURED_STEPS = 500


@dataclass(frozen=True)
class Settings:
    """What an optimiser does with a gradient: learning rate, and the keys of [training] of these names."""

    rate: float
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0

    @classmethod
    def of(cls, training: schema.Training, rate: float) -> Settings:
        """Those of a scenario at this learning rate."""
        return cls(rate, training.optimizer, training.momentum, training.weight_decay, training.proximal)

    @property
    def plain(self) -> Settings:
        """Those of SGD without anything else, at this learning rate."""
        return Settings(self.rate)


class Optimiser:
    """Steps of one user in one round, from the weights `start` (D,), which are left as they are.

    The proximal term pulls towards `anchor` (D,), by default towards where the steps begin.
    """

    def __init__(self, settings: Settings, start: Tensor, anchor: Tensor | None = None) -> None:
        self.settings, self.weights = settings, start.clone()
        self.anchor = start if anchor is None else anchor
        self._taken = 0
        self._average: Tensor | None = None
        self._squares: Tensor | None = None

    def step(self, total: Tensor, size: int = 1) -> None:
        """One step on `total` (D,), the sum of `size` samples' gradients."""
        self._taken += 1
        if self.settings.optimizer == "adam":
            self._adam(total / size)
        else:
            self._sgd(total, size)

    def _sgd(self, total: Tensor, size: int) -> None:
        """As torch.optim.SGD; in units of sums, so that a plain step has the bits of `noised_step`."""
        use = self.settings
        if use.weight_decay > 0:
            total = total + self.weights * (size * use.weight_decay)
        if use.proximal > 0:
            total = total + (self.weights - self.anchor) * (size * use.proximal)
        if use.momentum > 0:
            total = total if self._average is None else self._average * use.momentum + total
            self._average = total
        self.weights = self.weights - total * (use.rate / size)

    def _adam(self, gradient: Tensor) -> None:
        """As torch.optim.AdamW."""
        use, (first, second) = self.settings, _ADAM
        if use.proximal > 0:
            gradient = gradient + (self.weights - self.anchor) * use.proximal
        if use.weight_decay > 0:
            self.weights = self.weights * (1.0 - use.rate * use.weight_decay)
        if self._average is None or self._squares is None:
            self._average, self._squares = torch.zeros_like(gradient), torch.zeros_like(gradient)
        self._average = self._average * first + gradient * (1.0 - first)
        self._squares = self._squares * second + gradient.square() * (1.0 - second)
        scale = self._squares.sqrt().div_(math.sqrt(1.0 - second**self._taken)).add_(_EPSILON)
        self.weights = self.weights - self._average / scale * (use.rate / (1.0 - first**self._taken))


@dataclass(frozen=True)
class Travel:
    """How far weights get in 1 to n steps, (n,) each, at a learning rate.

    longest: for mean gradients of length 1 in every step (SGD), or for each weight, whatever its gradients (Adam);
    noise: standard deviation for mean gradients that are noise of standard deviation 1 (SGD, exact), or of any size
    (Adam, for which it is what noise alone does: gradients that stand out of it leave it a smaller share of a step).
    """

    longest: Floats
    noise: Floats


@lru_cache(maxsize=64)
def travel(settings: Settings, steps: int) -> Travel:
    """`Travel` of up to so many steps; weight decay towards 0 is left out of Adam's."""
    return _adam_travel(settings.rate, steps) if settings.optimizer == "adam" else _sgd_travel(settings, steps)


@lru_cache(maxsize=64)
def remaining(settings: Settings, steps: int) -> Floats:
    """(n,) share of a distance from the anchor that 1 to n steps leave of it, without gradients.

    Adam divides a pull by its size, so that no share is known: 1.
    """
    return np.ones(steps) if settings.optimizer == "adam" else _sgd_walk(settings, steps, 1.0, 0.0)


def _sgd_travel(settings: Settings, steps: int) -> Travel:
    """From the response to one unit gradient: SGD is linear in its gradients, and every step responds alike."""
    response = _sgd_walk(settings, steps, 0.0, 1.0)
    return Travel(np.cumsum(np.abs(response)), np.sqrt(np.cumsum(np.square(response))))


def _sgd_walk(settings: Settings, steps: int, where: float, gradient: float) -> Floats:
    """(n,) where 1 to n steps of SGD lead from `where`, with this `gradient` in the first one and pulled towards 0."""
    pull = settings.weight_decay + settings.proximal
    walk = np.empty(steps)
    velocity = 0.0
    for step in range(steps):
        velocity = settings.momentum * velocity + (gradient if step == 0 else 0.0) + pull * where
        where -= settings.rate * velocity
        walk[step] = where
    return walk


def _adam_travel(rate: float, steps: int) -> Travel:
    """The longest step by the inequality of Cauchy and Schwarz; the noise by trying it, with a generator of its own."""
    first, second = _ADAM
    t = np.arange(1, steps + 1, dtype=np.float64)
    ratio = first**2 / second
    sums = (1.0 - ratio**t) / (1.0 - ratio)
    longest = (1.0 - first) / (1.0 - first**t) * np.sqrt((1.0 - second**t) / (1.0 - second) * sums)
    rng = np.random.default_rng(0)
    optimiser = Optimiser(Settings(1.0, "adam"), torch.zeros(_MEASURED_WEIGHTS, dtype=torch.float64))
    noise = np.empty(steps)
    for step in range(min(steps, _MEASURED_STEPS)):
        optimiser.step(torch.from_numpy(rng.standard_normal(_MEASURED_WEIGHTS)))
        noise[step] = math.sqrt(float(optimiser.weights.square().mean()))
    if steps > _MEASURED_STEPS:
        noise[_MEASURED_STEPS:] = noise[_MEASURED_STEPS - 1] * np.sqrt(t[_MEASURED_STEPS:] / _MEASURED_STEPS)
    return Travel(rate * np.cumsum(longest), rate * noise)
