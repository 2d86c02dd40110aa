"""Steps of users along one model's path, added up over rounds.

A model moves little from round to round, so that users who train the same one can be compared although they stepped in
different rounds. Products of sums of steps say more than sums of products: over n rounds the noise of a product of two
means falls by n, that of a mean of n products by the square root of n only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.identification.products import Products, debiased_products

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.float32]

#: Steps of all users are kept up to this number of weights in all: 32 MB, in memory and in every checkpoint.
LARGEST = 1 << 23
_NAMES = ("model", "steps", "variance", "rounds")


@dataclass(frozen=True)
class Paths:
    """Sums of the steps of U users, each along the path of one model; older steps count less.

    model: (U,) whose path it is, -1 for none; steps: (U, D) sums of noised steps; variance: (U,) of the noise on each
    weight of a sum; rounds: (U,) how many steps were added up, older ones counting less.
    """

    model: Ints
    steps: Weights
    variance: Floats
    rounds: Floats

    @classmethod
    def fit(cls, users: int, weights: int) -> bool:
        """Whether the steps of so many users and weights are kept."""
        return users * weights <= LARGEST

    @classmethod
    def remembered(cls, memory: Mapping[str, npt.NDArray[Any]], users: int, weights: int) -> Paths:
        """As they were remembered, or none yet."""
        if "paths.model" in memory:
            return cls(*(memory[f"paths.{name}"] for name in _NAMES))
        none = np.zeros(users)
        return cls(np.full(users, -1), np.zeros((users, weights), np.float32), none, none)

    @property
    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to remember."""
        return {f"paths.{name}": getattr(self, name) for name in _NAMES}

    def left(self, model: Ints) -> Bools:
        """(U,) users that were on a path and now take part in another `model` (U,)."""
        return np.asarray((self.model >= 0) & (model != self.model))

    def walked(
        self, users: Ints, model: Ints, steps: npt.NDArray[np.floating], noise_std: Floats, fade: float
    ) -> Paths:
        """A round later, in which `users` (n,) made `steps` (n, D) from their `model` (n,).

        noise_std: (n,) of the noise on each weight of a step; fade: what all that was before counts now. Users that
        took part in another model before begin anew.
        """
        keep = np.full(len(self.model), fade)
        keep[users] *= self.model[users] == model
        sums = self.steps * keep[:, None].astype(np.float32)
        variance, rounds, models = keep**2 * self.variance, keep * self.rounds, self.model.copy()
        sums[users] += steps
        variance[users] += noise_std**2
        rounds[users] += 1.0
        models[users] = model
        return Paths(models, sums, variance, rounds)

    def without(self, users: Bools) -> Paths:
        """With `users` (U,) on no path."""
        return Paths(np.where(users, -1, self.model), self.steps, self.variance, np.where(users, 0.0, self.rounds))

    def products(self, users: Ints) -> tuple[Products, Floats, Bools]:
        """Products of the mean steps of `users` (n,), how many products of steps each is made of, which are known.

        A pair is known where both are on one path; (n, n) each.
        """
        rounds = self.rounds[users]
        safe = np.where(rounds > 0, rounds, 1.0)
        means: Weights = self.steps[users] * (1.0 / safe[:, None]).astype(np.float32)
        products = debiased_products(means, np.sqrt(self.variance[users]) / safe)
        model = self.model[users]
        known = (model[:, None] == model) & (model >= 0) & (rounds[:, None] * rounds > 0)
        return products, np.outer(rounds, rounds), known
