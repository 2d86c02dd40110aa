"""Class proportions of groups and of users, and the integer counts that follow from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from covey.data.sources.base import Stream
from covey.data.types import Dataset, Labels
from covey.errors import DataError
from covey.scenario.schema import Data
from covey.seeding import generator

Shares = NDArray[np.float64]

#: The paper's setting, Fig. 2: ten classes, four groups.
_TEN_CLASSES_FOUR_GROUPS: tuple[dict[int, float], ...] = (
    {0: 4, 1: 1},
    {1: 3, 2: 1, 4: 1},
    {5: 2, 6: 2, 7: 1},
    {8: 3, 9: 2},
)


def default_mixes(classes: int, groups: int) -> tuple[dict[int, float], ...]:
    """Class weights of each group for `label_mix` when the scenario gives none; no two groups are alike.

    Ten classes and four groups: two to three classes each, at 4:1, 3:1:1, 2:2:1 and 3:2. Up to as many
    groups as classes: group k gets the k-th of equal consecutive ranges of classes, with falling weights
    n, n-1, ..., 1. More groups than classes: group k has class k mod classes at weight 4 and a second
    class at weight 1, which moves on with every turn.
    """
    if (classes, groups) == (10, 4):
        return _TEN_CLASSES_FOUR_GROUPS
    if groups <= classes:
        ranges = np.array_split(np.arange(classes), groups)
        return tuple({int(c): float(len(r) - j) for j, c in enumerate(r)} for r in ranges)
    if groups > classes * (classes - 1):
        raise DataError(
            f"{classes} classes give at most {max(classes * (classes - 1), 1)} different default mixes, but there are"
            f" {groups} groups; lower data.groups or write data.mixes yourself"
        )
    return tuple({k % classes: 4.0, (k % classes + 1 + k // classes) % classes: 1.0} for k in range(groups))


def label_mixes(dataset: Dataset, data: Data, groups: int) -> Shares:
    """Class proportions of every group by `data.mixes` or the default mixes: (groups, classes), rows sum to 1."""
    classes = len(dataset.classes)
    mixes: Sequence[dict[int, float]] = default_mixes(classes, groups)
    if data.mixes is not None:
        mixes = [{int(c): weight for c, weight in mix.items()} for mix in data.mixes]
    weights = np.zeros((groups, classes))
    for group, mix in enumerate(mixes):
        if max(mix) >= classes:
            raise DataError(
                f"data.mixes of group {group} names class {max(mix)}, but '{dataset.name}' has the classes 0 to"
                f" {classes - 1}"
            )
        weights[group, list(mix)] = list(mix.values())
    return _normalised(weights)


def dirichlet_mixes(dataset: Dataset, data: Data, groups: int, seed: int) -> Shares:
    """Class proportions of every group, Dirichlet(`data.dirichlet_alpha`): (groups, classes), rows sum to 1."""
    # Round 1 of the purpose: round 0 deals users to groups.
    rng, classes = generator(seed, "groups", round=1), len(dataset.classes)
    return _normalised(rng.dirichlet(np.full(classes, data.dirichlet_alpha), size=groups))


def class_frequencies(dataset: Dataset, groups: int) -> Shares:
    """The data set's own class proportions, for every group the same: (groups, classes), rows sum to 1."""
    frequencies = np.bincount(dataset.y[~dataset.test], minlength=len(dataset.classes))
    return _normalised(np.tile(frequencies, (groups, 1)).astype(float))


def _normalised(weights: Shares) -> Shares:
    shares: Shares = weights / weights.sum(axis=1, keepdims=True)
    return shares


def user_shares(mixes: Shares, concentration: float, seed: int, attempt: int = 0) -> Shares:
    """Class proportions of every user, Dirichlet(concentration x mix of its group): (U, classes).

    Every attempt gives other proportions of the same distribution.
    """
    shares = np.zeros_like(mixes)
    for user, mix in enumerate(mixes):
        held = np.flatnonzero(mix)
        rng = generator(seed, "partition", user=user, round=Stream.SHARES)
        shares[user, held] = rng.dirichlet(concentration * mix[held], size=attempt + 1)[attempt]
    return shares


def counts(shares: Shares, sizes: Labels) -> Labels:
    """Samples of each user and class, (U, classes): the largest-remainder rounding of shares x sizes.

    Rows sum to sizes exactly, and no entry is further than 1 from its exact value.
    """
    exact = shares * sizes[:, None]
    whole = np.floor(exact).astype(np.int64)
    rest = sizes - whole.sum(axis=1)
    rank = np.argsort(np.argsort(whole - exact, axis=1, kind="stable"), axis=1, kind="stable")
    rounded: Labels = whole + (rank < rest[:, None])
    return rounded
