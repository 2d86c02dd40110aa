"""Steps from one common model, gathered over rounds until they say who belongs together.

While stations gather, all users have task 0 and its model stands still, so that every step is a noised gradient at the
same weights: steps of different rounds can be compared, and those of one user averaged. All of it is post-processing of
uploads that are charged anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.identification.heard import Heard
from covey.identification.products import Products, debiased_products, shrink_lengths
from covey.identification.rule import Floats, Ints, Memory, RuleRound, Weights

#: Longest that users wait for models of their own, in rounds.
_LONGEST = 3
#: Enough: the products of two steps of the same kind exceed their noise by this factor.
_SIGNAL = 3.0
_NAMES = ("gathered_steps", "gathered_variance", "gathered_times")


@dataclass(frozen=True)
class Gathering:
    """Sums over the rounds so far, one row for each of all U users.

    steps: (U, D) sums of steps; variance: (U,) of the noise on each weight of them; times: (U,) how often a user was
    heard.
    """

    steps: Weights
    variance: Floats
    times: Ints

    @staticmethod
    def remembered(at: RuleRound) -> Gathering:
        """What the last rounds gathered; nothing in the first."""
        if not all(name in at.memory for name in _NAMES):
            length = at.models.shape[1]
            return Gathering(np.zeros((at.users, length), np.float32), np.zeros(at.users), np.zeros(at.users, np.int64))
        steps, variance, times = (at.memory[name] for name in _NAMES)
        return Gathering(steps, variance, times)

    def memory(self) -> Memory:
        """Arrays to remember."""
        return dict(zip(_NAMES, (self.steps, self.variance, self.times), strict=True))

    def add(self, heard: Heard) -> Gathering:
        """With the steps of one more round."""
        steps, variance, times = self.steps.copy(), self.variance.copy(), self.times.copy()
        steps[heard.users] += heard.steps
        variance[heard.users] += heard.noise_std**2
        times[heard.users] += 1
        return Gathering(steps, variance, times)

    @property
    def users(self) -> Ints:
        """(n,) users heard so far."""
        return np.flatnonzero(self.times > 0)

    @property
    def means(self) -> Floats:
        """(n, D) mean step of each user heard so far."""
        return np.asarray(self.steps[self.users].astype(np.float64) / self.times[self.users, None])

    @property
    def noise_std(self) -> Floats:
        """(n,) standard deviation of the noise on each weight of a mean step."""
        return np.asarray(np.sqrt(self.variance[self.users]) / self.times[self.users])

    def products(self) -> Products:
        """Debiased products of the users' mean steps, lengths shrunk, (n, n) each."""
        products = debiased_products(self.means, self.noise_std)
        return Products(shrink_lengths(products), products.variance)

    def complete(self, round: int, tasks: int) -> bool:
        """Whether it is time to make models of it: enough users and signal, or `round`, from 0, the last to wait for.

        Signal is the mean squared length of a step over the noise of a product of two.
        """
        users = len(self.users)
        if users < 2:
            return False
        if round >= _LONGEST - 1:
            return True
        products = self.products()
        lengths, others = np.diag(products.values).mean(), ~np.eye(users, dtype=bool)
        clear = lengths >= _SIGNAL * np.sqrt(products.variance[others].mean())
        return users >= min(len(self.times), 2 * tasks) and bool(clear)
