"""Discrete actions: the subsets of at most R users, and the action mask of a station."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from covey.arrays import BoolArray, IntArray
from covey.errors import PolicyError

FloatTable = NDArray[np.float32]

#: Beyond this many subsets, enumerating them is refused.
MAX_SUBSETS = 20_000


def subset_count(users: int, blocks: int) -> int:
    """Number of subsets of at most `blocks` of `users`."""
    return sum(comb(users, size) for size in range(min(users, blocks) + 1))


@lru_cache(maxsize=8)
def subsets(users: int, blocks: int) -> BoolArray:
    """(A, U) bool, read-only: every subset of at most `blocks` users, small ones first; number 0 is empty."""
    count = subset_count(users, blocks)
    if count > MAX_SUBSETS:
        raise PolicyError(
            f"{users} users and {blocks} blocks have {count:,} subsets, more than the {MAX_SUBSETS:,} that numbered"
            " actions allow; use the additive head, or actions='binary' in parallel_env"
        )
    table = np.zeros((count, users), dtype=bool)
    row = 0
    for size in range(min(users, blocks) + 1):
        for members in combinations(range(users), size):
            table[row, list(members)] = True
            row += 1
    table.setflags(write=False)
    return table


def allowed(eligible: BoolArray, blocks: int) -> BoolArray:
    """(..., A) action mask: subsets of users that the station can serve; eligible: (..., U)."""
    barred = (~eligible).astype(np.float32) @ _members(eligible.shape[-1], blocks)
    return np.asarray(barred == 0)


@lru_cache(maxsize=8)
def _members(users: int, blocks: int) -> FloatTable:
    """(U, A) float32: 1 where a user is in a subset, for products with it."""
    return np.ascontiguousarray(subsets(users, blocks).T, dtype=np.float32)


def subset_numbers(selected: BoolArray, blocks: int) -> IntArray:
    """Number (...,) of each subset (..., U) of at most `blocks` users."""
    codes, order = _codes(selected.shape[-1], blocks)
    wanted = selected @ (1 << np.arange(selected.shape[-1], dtype=np.int64))
    place = np.searchsorted(codes, wanted)
    place = np.minimum(place, len(codes) - 1)
    if np.any(codes[place] != wanted):
        raise ValueError(f"a selection has more than {blocks} users and so no number among the subsets")
    return np.asarray(order[place])


@lru_cache(maxsize=8)
def _codes(users: int, blocks: int) -> tuple[IntArray, IntArray]:
    """Subsets as sorted bit masks, and the action number of each."""
    codes = subsets(users, blocks) @ (1 << np.arange(users, dtype=np.int64))
    order = np.argsort(codes)
    return codes[order], order
