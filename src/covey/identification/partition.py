"""The partition of users whose steps agree best within its parts, from products of their steps.

With products G_ij = <d_i, d_j>, k-means on the steps d_i maximises sum_c (1 / W_c) sum_{i,j in c} w_i w_j G_ij over
partitions into parts c of weight W_c. Only products are needed, so that they may be debiased ones of noised steps
(`covey.identification.products`), which no points have.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: A move has to gain this share of the largest product, so that rounding cannot make users go round in circles.
_LEAST_GAIN = 1e-10


def best_partition(values: Floats, weights: Floats, clusters: int, rng: np.random.Generator, starts: int = 20) -> Ints:
    """The part of each of n users, (n,), in a partition into at most `clusters` parts that maximises `partition_value`.

    values: (n, n) symmetric products, not necessarily those of any points; weights: (n,) positive. From each of
    `starts` k-means++ draws, the user whose move to another part gains most is moved until no move gains; the best end
    counts. Parts are numbered from 0 in the order of their first user; some may stay empty, where splitting gains
    nothing.
    """
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    _check(values, weights)
    if clusters < 1 or starts < 1:
        raise ValueError(f"clusters is {clusters} and starts is {starts}; both must be at least 1")
    users = len(weights)
    if users == 0:
        return np.zeros(0, dtype=np.int64)
    clusters = min(clusters, users)
    labels = _seeded(values, weights, clusters, starts, rng)
    labels = _climb(values, weights, labels, clusters)
    return _in_order(_best(values, weights, labels))


def partition_value(values: Floats, weights: Floats, labels: Ints) -> float:
    """Sum over the parts c of (1 / W_c) sum_{i,j in c} w_i w_j G_ij, for `values` (n, n), `weights` and `labels` (n,).

    The larger, the nearer users are to the weighted mean of their part; splitting a part whose users agree gains 0.
    """
    if labels.shape != weights.shape:
        raise ValueError(f"there are {len(weights)} users, but labels of shape {labels.shape}; give one for each user")
    parts = np.equal.outer(np.unique(labels), labels) * weights
    return float((np.einsum("ci,ij,cj->c", parts, values, parts, optimize=True) / parts.sum(axis=1)).sum())


def _check(values: Floats, weights: Floats) -> None:
    if weights.ndim != 1 or values.shape != (len(weights), len(weights)):
        raise ValueError(f"values are {values.shape} and weights {weights.shape}; they must be (n, n) and (n,)")
    if not (np.isfinite(values).all() and np.isfinite(weights).all() and (weights > 0).all()):
        raise ValueError("values and weights must be finite, and weights positive")


def _seeded(values: Floats, weights: Floats, clusters: int, starts: int, rng: np.random.Generator) -> Ints:
    """(s, n) the nearest of `clusters` users that were drawn, each far from those drawn before it (k-means++)."""
    lengths = np.diag(values)
    # Starts often draw the same seeds: what follows from them is computed once.
    chances: dict[tuple[int, ...], Floats | None] = {}
    parts: dict[tuple[int, ...], Ints] = {}
    labels = np.empty((starts, len(weights)), dtype=np.int64)
    for row in labels:
        seeds: tuple[int, ...] = ()
        while len(seeds) < clusters:
            if seeds not in chances:
                chances[seeds] = _chances(values, lengths, weights, seeds)
            cumulated = chances[seeds]
            if cumulated is None:
                break
            seeds = (*seeds, int(cumulated.searchsorted(rng.random(), side="right")))
        if seeds not in parts:
            drawn = list(seeds)
            parts[seeds] = (2 * values[drawn] - lengths[drawn, None]).argmax(axis=0)
            parts[seeds][drawn] = np.arange(len(seeds))
        row[:] = parts[seeds]
    return labels


def _chances(values: Floats, lengths: Floats, weights: Floats, seeds: tuple[int, ...]) -> Floats | None:
    """(n,) cumulated chances of the users to be drawn after `seeds`; None where no user is away from all of these."""
    far = weights
    if seeds:
        drawn = list(seeds)
        # Debiased squared distances can be below 0, where users are the same as far as noise lets see.
        far = (lengths + lengths[drawn, None] - 2 * values[drawn]).min(axis=0).clip(0.0) * weights
        far[drawn] = 0.0
    total = far.sum()
    if not total > 0:
        return None
    # Summed and scaled as `rng.choice` does, which a run's draws have to agree with.
    cumulated: Floats = (far / total).cumsum()
    cumulated /= cumulated[-1]
    return cumulated


def _best(values: Floats, weights: Floats, labels: Ints) -> Ints:
    """The row of `labels` (s, n) of the highest `partition_value`; the first if all are the same partition."""
    best: Ints = labels[0]
    together = best[:, None] == best
    if all(np.array_equal(row[:, None] == row, together) for row in labels[1:]):
        return best
    scores: dict[bytes, float] = {}
    for row in labels:
        if row.tobytes() not in scores:
            scores[row.tobytes()] = partition_value(values, weights, row)
    best = labels[int(np.argmax([scores[row.tobytes()] for row in labels]))]
    return best


def _climb(values: Floats, weights: Floats, labels: Ints, clusters: int) -> Ints:
    """Where the partitions `labels` (s, n) lead by single moves, each the one that gains most; all s at once."""
    labels = labels.copy()
    starts, users = labels.shape
    everyone, rows = np.arange(users), np.arange(starts)
    least = _LEAST_GAIN * float(np.abs(values).max()) * float(weights.max())
    member = (labels[:, :, None] == np.arange(clusters)) * weights[:, None]
    towards = values @ member  # (s, n, c): products with the sum of each part
    total = member.sum(axis=1)
    inner = (member * towards).sum(axis=1)
    own = weights**2 * np.diag(values)
    # Every move raises the score, so that no partition comes twice; the bound is for time alone.
    for _ in range(100 * users):
        # A part's worth with the user in it, and without.
        cross = 2 * weights[:, None] * towards[rows]
        joined = (inner[rows, None] + cross + own[:, None]) / (total[rows, None] + weights[:, None])
        at = labels[rows]
        mine = np.arange(len(rows))[:, None]
        left = total[rows[:, None], at] - weights
        alone = left <= 1e-12 * weights
        without = (inner[rows[:, None], at] - cross[mine, everyone, at] + own) / np.where(alone, 1.0, left)
        worth = inner[rows] / np.where(total[rows] > 0, total[rows], 1.0)
        gain = joined - worth[:, None]
        gain += (np.where(alone, 0.0, without) - worth[mine, at])[:, :, None]
        gain[mine, everyone, at] = -np.inf
        best = gain.reshape(len(rows), -1).argmax(axis=1)
        going = gain.reshape(len(rows), -1)[np.arange(len(rows)), best] > least
        rows, best = rows[going], best[going]
        if len(rows) == 0:
            break
        user, new = best // clusters, best % clusters
        old = labels[rows, user]
        labels[rows, user] = new
        for part, sign in ((old, -1.0), (new, 1.0)):
            step = sign * weights[user]
            inner[rows, part] += 2 * step * towards[rows, user, part] + own[user]
            towards[rows, :, part] += step[:, None] * values[user]
            total[rows, part] += step
        emptied = (labels[rows] != old[:, None]).all(axis=1)
        towards[rows[emptied], :, old[emptied]] = 0.0
        inner[rows[emptied], old[emptied]] = total[rows[emptied], old[emptied]] = 0.0
    return labels


def _in_order(labels: Ints) -> Ints:
    """The same parts, numbered from 0 in the order of their first user."""
    _, first, part = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[part]
