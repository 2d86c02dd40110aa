"""What uploads of several rounds say about who belongs together: products of pairs, and the best split of a task.

Products are comparable for two users that step from one model. Steps are added up along the model's path
(`covey.identification.paths`), or, where steps of all users would take too much memory, the products of single rounds
are; older ones fade, and the variance that noise gives them is known. All of it is post-processing of releases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.identification.partition import best_partition
from covey.identification.paths import Paths
from covey.identification.products import debiased_products

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: What a round's products count in the next one.
FADE = 0.9
#: Rounds that are worth waiting for.
FEW = 3
#: Users whose pairs are remembered; beyond that, memory would grow with the square of their number, and the products
#: of one round have to do.
REMEMBERED = 512
#: Parts are told apart when their difference is this many standard deviations above what chance gives the best split.
_BEYOND_CHANCE = 2.0
#: Parts of different groups differ by more than this share of what groups with nothing in common differ by: users of
#: one group differ in what their own samples have left to learn.
MATTERS = 0.25
#: Parts of different groups have centres with a cosine below this.
SEPARATE = 0.5


@dataclass(frozen=True)
class Evidence:
    """What is known of the pairs of m users: sums over rounds of products of their steps.

    users: (m,) ascending; all users, or those of the last round where there are too many to remember; sums, variances,
    counts: (m, m) products, their variances, and how many there were; paths: of all users, where their steps are kept:
    products of pairs that are on one path now come from there, and sums are of paths that one of them has left.
    """

    users: Ints
    sums: Floats
    variances: Floats
    counts: Floats
    paths: Paths | None = None

    @classmethod
    def none(cls, users: Ints) -> Evidence:
        """Nothing is known of any pair of these users."""
        nothing = np.zeros((len(users), len(users)))
        return cls(users, nothing, nothing, nothing)

    @classmethod
    def remembered(
        cls, memory: Mapping[str, npt.NDArray[Any]], users: int, now: Ints, weights: int | None = None
    ) -> Evidence:
        """The evidence of earlier rounds, faded, of U = `users`; `now` are those heard in this round.

        weights: D, where steps may be kept.
        """
        if users > REMEMBERED:
            return cls.none(np.sort(now)[:REMEMBERED])
        kept = weights is not None and Paths.fit(users, weights)
        paths = Paths.remembered(memory, users, weights or 0) if kept else None
        if "evidence.sums" not in memory:
            return replace(cls.none(np.arange(users)), paths=paths)
        sums, variances, counts = (memory[f"evidence.{name}"] for name in ("sums", "variances", "counts"))
        return cls(np.arange(users), FADE * sums, FADE**2 * variances, FADE * counts, paths)

    @property
    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to remember; none where evidence is of one round only."""
        if not np.array_equal(self.users, np.arange(len(self.users))):
            return {}
        found = {"evidence.sums": self.sums, "evidence.variances": self.variances, "evidence.counts": self.counts}
        return found if self.paths is None else found | self.paths.memory

    @property
    def heard_users(self) -> Ints:
        """Users of whom something was heard, ascending."""
        heard = np.diag(self.counts) > 0
        return self.users[heard if self.paths is None else heard | (self.paths.rounds > 0)]

    def heard(self, users: Ints, steps: npt.NDArray[np.floating], noise_std: Floats) -> Evidence:
        """The evidence with the products of `steps` (n, D) that `users` (n,) made from one model.

        noise_std: (n,) of the noise on each weight of a step.
        """
        known = np.isin(users, self.users)
        users, steps, noise_std = users[known], steps[known], noise_std[known]
        products = debiased_products(steps, noise_std)
        at = self._at(users)
        sums, variances, counts = self.sums.copy(), self.variances.copy(), self.counts.copy()
        sums[at] += products.values
        variances[at] += products.variance
        counts[at] += 1.0
        return replace(self, sums=sums, variances=variances, counts=counts)

    def walked(self, users: Ints, model: Ints, steps: npt.NDArray[np.floating], noise_std: Floats) -> Evidence:
        """The evidence with the `steps` (n, D) that `users` (n,) made from their `model` (n,); needs `paths`."""
        assert self.paths is not None
        return replace(self, paths=self.paths.walked(users, model, steps, noise_std, FADE))

    def settled(self, model: Ints) -> Evidence:
        """The evidence where users take part in `model` (U,): what paths said of pairs that part is added to sums."""
        if self.paths is None or not (leaving := self.paths.left(model)).any():
            return self
        users = np.flatnonzero(self.paths.rounds > 0)
        products, number, known = self.paths.products(users)
        known &= leaving[users][:, None] | leaving[users]
        at = self._at(users)
        sums, variances, counts = self.sums.copy(), self.variances.copy(), self.counts.copy()
        sums[at] += np.where(known, number * products.values, 0.0)
        variances[at] += np.where(known, number**2 * products.variance, 0.0)
        counts[at] += np.where(known, number, 0.0)
        return replace(self, sums=sums, variances=variances, counts=counts, paths=self.paths.without(leaving))

    def among(self, users: Ints) -> tuple[Floats, Floats, Bools]:
        """Mean products and their variances, (n, n) each, of `users` (n,), and which pairs are known."""
        at = self._at(users)
        sums, variances, counts = self.sums[at], self.variances[at], self.counts[at]
        if self.paths is not None:
            products, number, together = self.paths.products(users)
            number = np.where(together, number, 0.0)
            sums, counts = sums + number * products.values, counts + number
            variances = variances + number**2 * products.variance
        known = counts > 0
        counts = np.where(known, counts, 1.0)
        return sums / counts, variances / counts**2, known

    def rounds_among(self, users: Ints) -> Floats:
        """(n, n) in how many rounds, older ones counting less, the noise of each pair of `users` (n,) averaged out.

        The noise of a product falls by the square root of the rounds in which it was added up, and by their number
        where steps were: that counts as its square.
        """
        counts = self.counts[self._at(users)]
        if self.paths is None:
            return counts
        _, number, together = self.paths.products(users)
        return counts + np.where(together, number, 0.0)

    def _at(self, users: Ints) -> tuple[npt.NDArray[np.intp], ...]:
        rows = np.searchsorted(self.users, users)
        return np.ix_(rows, rows)


@dataclass(frozen=True)
class Split:
    """The best partition of users into parts.

    labels: (n,) parts; level: squared length of a group's step, the largest that was seen; cosine: largest
    of the cosines between centres of parts, with cosine_std of its noise; score: difference between the two parts that
    are hardest to tell apart, in standard deviations of its noise; chance: the score that the best split of as many
    users of one group would reach; visible: the score that two groups with nothing in common would reach; difference:
    smallest squared distance of two centres, as a share of that of two groups with nothing in common; rounds: mean
    number of products of a pair; within: mean product of two users of one part, at present.
    """

    labels: Ints
    level: float
    cosine: float
    cosine_std: float
    score: float
    chance: float
    visible: float
    difference: float
    rounds: float
    within: float = 0.0

    @property
    def parts(self) -> int:
        """Number of parts."""
        return int(self.labels.max(initial=-1)) + 1

    @property
    def real(self) -> bool:
        """Whether the parts differ, by more than chance explains and by enough to matter."""
        return bool(
            self.parts > 1 and self.score > self.chance and self.cosine < SEPARATE and self.difference > MATTERS
        )

    @property
    def single(self) -> bool:
        """Whether all users are of one group: even the parts that differ most have nearly the same centre."""
        return bool(self.cosine - 2 * self.cosine_std > SEPARATE)

    @property
    def soon(self) -> bool:
        """Whether a few more rounds should tell if all users are of one group, which is possible as yet.

        Where no pair was heard in one round, there is no evidence at all, and waiting may bring some.
        """
        if self.rounds == 0:
            return True
        later = self.cosine_std * math.sqrt(self.rounds / (self.rounds + FEW))
        return bool(self.cosine + 2 * self.cosine_std > SEPARATE and 1 - 2 * later > SEPARATE)

    @property
    def hidden(self) -> bool:
        """Whether noise would hide parts that have nothing in common."""
        return bool(not self.visible > self.chance)


def best_split(
    evidence: Evidence, users: Ints, weights: Floats, parts: int, rng: np.random.Generator, reference: float = 0.0
) -> Split:
    """The best partition of `users` (n,) of `weights` (n,) into at most `parts` parts; users must have been heard.

    reference: the largest squared length of a group's step that was seen before; by it one judges what noise hides.
    """
    values, variance, known = evidence.among(users)
    np.fill_diagonal(known, False)
    n = len(users)
    level = float(values[known].mean()) if known.any() else 0.0
    filled = np.where(known, values, level)
    labels = np.zeros(n, dtype=np.int64)
    for _ in range(3):
        # A user's product with itself is mostly noise and its own samples; a user counts as its group does.
        np.fill_diagonal(filled, level)
        labels = best_partition(filled, weights, parts, rng, starts=8)
        alike = known & (labels[:, None] == labels[None, :])
        level = float(values[alike].mean()) if alike.any() else level
    found = int(labels.max(initial=0)) + 1
    means, spreads, borrowed = _between(values, variance, known, labels, found, level)
    cosine, cosine_std, score, chance, smallest = -1.0, 0.0, math.inf, _chance(n), math.inf
    sizes = np.bincount(labels)
    centre = np.maximum(np.diag(means), max(1e-3 * level, 1e-100))
    for a in range(found):
        for b in range(a):
            length = math.sqrt(centre[a] * centre[b])
            if means[a, b] / length > cosine:
                cosine, cosine_std = means[a, b] / length, math.sqrt(spreads[a, b]) / length
            difference = means[a, a] + means[b, b] - 2 * means[a, b]
            smallest = min(smallest, difference)
            within = spreads[a, a] + spreads[b, b]
            if borrowed[a] or borrowed[b]:
                # The level is the other part's own mean, or contains it: their errors add up.
                within += 2 * math.sqrt(spreads[a, a] * spreads[b, b])
            reached = difference / math.sqrt(max(within + 4 * spreads[a, b], 1e-300))
            # Chance had as many ways to divide the two parts as their users can be divided.
            if reached - _chance(sizes[a] + sizes[b]) < score - chance:
                score, chance = reached, _chance(sizes[a] + sizes[b])
    typical = float(variance[known].mean()) if known.any() else math.inf
    pairs = max(float(known.sum()) / 2, 1.0)
    # Two halves: a quarter of the pairs within each, half of them between.
    spread = math.sqrt(typical * (4 + 4 + 8) / pairs)
    length = max(level if level > 2 * math.sqrt(typical / pairs) else 0.0, reference)
    visible = 2 * length / spread if spread > 0 else math.inf
    if found == 1:  # no split gains anything
        cosine, cosine_std, score, smallest = 1.0, spread / max(level, 1e-300), 0.0, 0.0
    rounds = float(evidence.rounds_among(users)[known].mean()) if known.any() else 0.0
    difference = smallest / max(2 * length, 1e-300)
    return Split(labels, length, cosine, cosine_std, score, chance, visible, difference, rounds, level)


def pair_split(evidence: Evidence, users: Ints, level: float, reference: float) -> Split:
    """Two users (2,), apart if their steps have little in common.

    level: squared length of other groups' steps, by which that is judged, unless the two users' own steps are shorter;
    reference: as in `best_split`.
    """
    values, variance, known = evidence.among(users)
    own, uncertain = _own_length(np.diag(values), np.diag(variance))
    product, noise = float(values[0, 1]), float(variance[0, 1])
    if own < level:
        level, noise = own, noise + uncertain
    length, spread = max(level, 1e-300), math.sqrt(noise)
    rounds = float(evidence.rounds_among(users)[0, 1])
    if not known[0, 1] or level <= 0:
        return Split(np.zeros(2, dtype=np.int64), reference, 1.0, math.inf, 0.0, _chance(2), 0.0, 0.0, rounds)
    cosine, cosine_std = product / length, spread / length
    score = (level - product) / max(spread, 1e-300)
    labels = np.array([0, 1]) if score > 0 else np.zeros(2, dtype=np.int64)
    return Split(
        labels, reference, cosine, cosine_std, score, _chance(2), level / max(spread, 1e-300), 1 - cosine, rounds
    )


def _own_length(squares: Floats, variance: Floats) -> tuple[float, float]:
    """What the product of two users of one group would be at most, given their squared lengths (2,), and its variance.

    variance: (2,) of the squared lengths, which also contain what is peculiar to a user's own samples.
    """
    if (squares <= 0).any():
        return 0.0, 0.0
    square = float(squares[0] * squares[1])
    return math.sqrt(square), square / 4 * float((variance / squares**2).sum())


def _chance(users: int) -> float:
    """The score that the best split of so many users of one group stays below, as a rule."""
    return _BEYOND_CHANCE + math.sqrt(2 * math.log(2) * max(users - 1, 0))


def _between(
    values: Floats, variance: Floats, known: Bools, labels: Ints, parts: int, level: float
) -> tuple[Floats, Floats, Bools]:
    """Mean product and its variance between every two parts, (c, c) each; `level` where no pair is known.

    Also which parts (c,) have no known pair of their own, so that the level, the mean of all pairs of equal labels,
    stands for theirs with its variance.
    """
    means, spreads = np.full((parts, parts), level), np.zeros((parts, parts))
    borrowed = np.zeros(parts, dtype=bool)
    alike = known & (labels[:, None] == labels[None, :])
    if not alike.any():
        alike = known
    shared = 2 * float(variance[alike].sum()) / max(int(alike.sum()), 1) ** 2
    for a in range(parts):
        for b in range(parts):
            at = np.ix_(labels == a, labels == b)
            pairs = known[at].sum()
            if pairs:
                means[a, b] = values[at][known[at]].mean()
                # Both orders of a pair within a part are one measurement.
                spreads[a, b] = variance[at][known[at]].sum() / pairs**2 * (2 if a == b else 1)
            elif a == b:
                borrowed[a], spreads[a, a] = True, shared
    return means, spreads, borrowed
