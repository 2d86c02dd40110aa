"""Trying other selections than the best known one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]

#: Share of explored choices that change the best selection instead of drawing a new one.
_FLIP_SHARE = 0.75


def explore(
    selected: Bools, choosable: Bools, blocks: int, epsilon: float, rng: np.random.Generator, *, flip: bool
) -> Bools:
    """Selections (N, B, U) of which a share `epsilon` is replaced; choosable: (N, B, U) users that may be tried.

    A replaced selection differs from the best by one or two users (with `flip`, three times of four), or is a random
    subset of random size. None exceeds `blocks` users.
    """
    shape = selected.shape[:2]
    tried = rng.random(shape) < epsilon
    by_flip = rng.random(shape) < (_FLIP_SHARE if flip else 0.0)
    keys = rng.random(selected.shape)
    changes = rng.integers(1, 3, shape)
    size = rng.integers(0, blocks + 1, shape)
    fresh = _first(choosable, keys, size)
    flipped = _first(selected ^ _first(choosable, keys, changes), rng.random(selected.shape), np.full(shape, blocks))
    explored = np.where(by_flip[..., None], flipped, fresh)
    return np.asarray(np.where(tried[..., None], explored, selected))


def _first(candidates: Bools, keys: NDArray[np.float64], count: NDArray[np.int64]) -> Bools:
    """(N, B, U): of each station's candidates the `count` (N, B) with the smallest keys."""
    order = np.argsort(np.where(candidates, keys, np.inf), axis=-1)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(order.shape[-1]), order.shape), axis=-1)
    return np.asarray(candidates & (rank < count[..., None]))
