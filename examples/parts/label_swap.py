"""Data over time in one file (concept drift): from the eighth round on, the labels of some users are swapped.

covey run quick --set data.over_time=examples.parts.label_swap:LabelSwap
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from covey.data import UserData
from covey.data.over_time import DataOverTime

Labels = npt.NDArray[np.int64]

#: Rounds are counted from 1 in results, and from 0 here.
SWAP_ROUND = 7


class LabelSwap(DataOverTime):
    """Users of the first group relabel class c as classes - 1 - c from round 8 on; their images stay the same."""

    _swapped: tuple[UserData, UserData] | None = None

    def at(self, round: int, first: UserData) -> UserData:
        """The users' data in `round`."""
        if round < SWAP_ROUND:
            return first
        if self._swapped is None or self._swapped[0] is not first:
            # Cached: an object that has not changed is not copied to the worker processes again.
            self._swapped = first, self._swap(first)
        return self._swapped[1]

    def _swap(self, first: UserData) -> UserData:
        last = len(first.classes) - 1
        members = np.flatnonzero(first.groups == 0)

        def renamed(labels: Labels, offsets: Labels) -> Labels:
            new = labels.copy()
            for user in members:
                rows = slice(offsets[user], offsets[user + 1])
                new[rows] = last - new[rows]
            return new

        return replace(first, y=renamed(first.y, first.offsets), test_y=renamed(first.test_y, first.test_offsets))
