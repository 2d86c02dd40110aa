"""Exploration: epsilon-greedy selections and noisy utilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

#: Share of exploratory selections that perturb the greedy one instead of being drawn at random.
_FLIP_SHARE = 0.75
#: Standard deviation of the noise on utilities, which are of order one, at epsilon = 1.
_DISTURBANCE = 0.5
#: Range of the mean of random utilities: from plans with few users to full ones.
_MEANS = (-2.0, 1.0)


def explore(
    selected: Bools, choosable: Bools, blocks: int, epsilon: float, rng: np.random.Generator, *, flip: bool
) -> Bools:
    """Selections (N, B, U) of which a share `epsilon` is replaced; choosable: (N, B, U) users that may be tried.

    A replaced selection differs from the greedy one by one or two users (with `flip`, in three of four cases), or is a
    random subset of random size. None exceeds `blocks` users.
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


def explore_utilities(lead: Floats, further: Floats, epsilon: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Noisy utilities (n, B, U) for the guard; a share `epsilon` of the networks gets random ones instead.

    Random utilities have a random mean, so that plans of all sizes are tried.
    """
    count = len(lead)
    tried = (rng.random(count) < epsilon)[:, None, None]
    noise = rng.standard_normal((2, *lead.shape))
    drawn = noise + rng.uniform(*_MEANS, (count, 1, 1))
    parts = []
    for part, disturbance, fresh in zip((lead, further), noise, drawn, strict=True):
        changed = np.where(tried, fresh, part + epsilon * _DISTURBANCE * disturbance)
        parts.append(np.where(np.isfinite(part), changed, -np.inf))
    return parts[0], parts[1]


def _first(candidates: Bools, keys: NDArray[np.float64], count: NDArray[np.int64]) -> Bools:
    """(N, B, U): of each station's candidates the `count` (N, B) with the smallest keys."""
    order = np.argsort(np.where(candidates, keys, np.inf), axis=-1)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(order.shape[-1]), order.shape), axis=-1)
    return np.asarray(candidates & (rank < count[..., None]))
