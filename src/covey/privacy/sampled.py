"""Counts of noised sums on Poisson samples, for all users, in a few arrays.

What a sum costs depends on its noise multiplier and its sampling rate. Multipliers are rounded down and rates up to a
grid of 0.025 %, which errs on the safe side: a smaller multiplier and a larger rate protect less. Sums of equal
multiplier and rate are one row, so that a user with the same noise in every round has one row. Where loss
distributions are composed, more than `MOST_KINDS` different rows of a user are merged, on a coarser grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.privacy.composition import STEP, Sums

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Farthest grid point that is read: multipliers of 1e-86 and 1e86.
MOST_LEVEL = 800_000
#: More different multipliers and rates of one user are merged, on a grid twice as coarse each time.
MOST_KINDS = 8


def multiplier_levels(multiplier: Floats) -> Ints:
    """(n,) grid points at or below these noise multipliers."""
    # Rounding may lift a value that lies on the grid; it is then put on the point below.
    return np.asarray(np.floor(np.log(multiplier) / STEP + 1e-9), dtype=np.int64)


def rate_levels(rate: Floats) -> Ints:
    """(n,) grid points at or above these sampling rates."""
    return np.asarray(np.ceil(np.log(rate) / STEP - 1e-9), dtype=np.int64)


def values_of(levels: Ints) -> Floats:
    """(n,) multipliers or rates of grid points."""
    return np.asarray(np.exp(levels * STEP))


class SampledSums:
    """How many sums of each multiplier and rate each user has released; values are never changed in place.

    rows: (n, 4) user, grid point of the multiplier, grid point of the rate, number of sums; sorted, without duplicates.
    """

    def __init__(self, rows: Ints | None = None) -> None:
        self._rows: Ints = np.zeros((0, 4), dtype=np.int64) if rows is None else rows
        self._new: tuple[Ints, ...] = ()

    def __bool__(self) -> bool:
        return len(self._rows) > 0 or bool(self._new)

    @property
    def rows(self) -> Ints:
        """(n, 4), see the class."""
        if self._new:
            self._rows, self._new = _merged(np.concatenate([self._rows, *self._new])), ()
        return self._rows

    def added(self, users: Ints, multiplier: Floats, rate: Floats, count: Ints) -> SampledSums:
        """With `count` (n,) more sums of `users` (n,)."""
        more = SampledSums(self._rows)
        columns = (users, multiplier_levels(multiplier), rate_levels(rate), count)
        more._new = (*self._new, np.stack(columns, axis=1).astype(np.int64))
        # Merging only when as much is new as old costs little per charge.
        if sum(map(len, more._new)) > len(more._rows) + 1024:
            more._rows = more.rows
        return more

    def raised_to(self, other: SampledSums) -> SampledSums:
        """Every count raised to that of `other`: two books of the same releases, of which each may lack some."""
        return SampledSums(_merged(np.concatenate([self.rows, other.rows]), largest=True))

    def with_users_of(self, users: Ints, other: SampledSums) -> SampledSums:
        """With the counts of `users` as `other` has them."""
        keep, take = ~np.isin(self.rows[:, 0], users), np.isin(other.rows[:, 0], users)
        return SampledSums(_merged(np.concatenate([self.rows[keep], other.rows[take]])))

    def covers(self, other: SampledSums) -> bool:
        """Whether no count of `other` is larger."""
        return np.array_equal(self.raised_to(other).rows, self.rows)

    def lacks_of(self, other: SampledSums) -> Ints:
        """(n, 4) rows of what `other` holds beyond this."""
        rows = _merged(np.concatenate([self.raised_to(other).rows, self.rows * [1, 1, 1, -1]]))
        return rows[rows[:, 3] > 0]

    def encoded(self, user: int) -> str:
        """The counts of a user as text: grid points of multiplier and rate and the count, by colons and spaces."""
        first, last = np.searchsorted(self.rows[:, 0], [user, user + 1])
        return " ".join(":".join(map(str, row)) for row in self.rows[first:last, 1:].tolist())

    @classmethod
    def decoded(cls, text: str, user: int) -> SampledSums:
        """What `encoded` gave, as counts of `user`; raises ValueError where it cannot be that."""
        return cls.from_list([[user, *map(int, row.split(":"))] for row in text.split()], user + 1)

    def of(self, user: int) -> Sums:
        """Multipliers, rates and numbers of sums of a user, at most `MOST_KINDS` of them."""
        first, last = np.searchsorted(self.rows[:, 0], [user, user + 1])
        return _coarsened(self.rows[first:last, 1:])

    def to_list(self) -> list[list[int]]:
        """The rows as lists, ready for JSON."""
        found: list[list[int]] = self.rows.tolist()
        return found

    @classmethod
    def from_list(cls, saved: Sequence[Sequence[int]], users: int) -> SampledSums:
        """What `to_list` gave; raises ValueError where it cannot be that."""
        rows = np.array(saved, dtype=np.int64).reshape(-1, 4) if len(saved) else np.zeros((0, 4), dtype=np.int64)
        if (
            len(rows) != len(saved)
            or np.any(np.abs(rows[:, 1:3]) > MOST_LEVEL)
            or np.any(rows[:, 3] < 1)
            or np.any(rows[:, 2] > 0)
        ):
            raise ValueError("a sampled release without a count, or with a rate above 1")
        if np.any(rows[:, 0] < 0) or np.any(rows[:, 0] >= users):
            raise ValueError("a sampled release of a user who does not exist")
        return cls(_merged(rows))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, SampledSums) and np.array_equal(self.rows, other.rows)

    __hash__ = None  # type: ignore[assignment]


def _merged(rows: Ints, *, largest: bool = False) -> Ints:
    """Sorted rows, those of equal user, multiplier and rate as one with the sum (or the largest) of their counts."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort(rows.T[2::-1])]
    first = np.concatenate([[True], np.any(rows[1:, :3] != rows[:-1, :3], axis=1)])
    starts = np.flatnonzero(first)
    counts = (np.maximum if largest else np.add).reduceat(rows[:, 3], starts)
    return np.concatenate([rows[first, :3], counts[:, None]], axis=1)


def _coarsened(kinds: Ints) -> Sums:
    """The rows (n, 3) of one user on the finest grid on which there are at most `MOST_KINDS`."""
    width, found = 1, dict[tuple[int, int], int]()
    while True:
        found.clear()
        for multiplier, rate, count in kinds.tolist():
            point = (multiplier // width * width, -(-rate // width) * width)
            found[point] = found.get(point, 0) + count
        if len(found) <= MOST_KINDS:
            break
        width *= 2
    return tuple(
        (math.exp(multiplier * STEP), math.exp(rate * STEP), count)
        for (multiplier, rate), count in sorted(found.items())
    )
