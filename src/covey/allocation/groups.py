"""Groups of links that can share one block: the columns of the exact solvers."""

from __future__ import annotations

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray

#: Entries of the largest intermediate array; keeps the enumeration's memory near 100 MB.
_CHUNK = 4_000_000


class TooLargeError(ValueError):
    """The instance has more shareable groups than the exact solvers accept."""


def shareable_groups(
    received_w: FloatArray, candidates: BoolArray, *, noise_w: float, min_sinr: float, max_groups: int
) -> IntArray:
    """All maximal sets of links that meet `min_sinr` together in one block, as (G, B) user numbers, -1 for none.

    received_w: (U, B) power each station receives from each user; candidates: (B, U) links to consider.
    A subset of a group is a group too, since interference only falls; so the maximal ones describe all.
    """
    stations, users = candidates.shape
    groups = np.full((1, stations), -1, dtype=np.int64)
    for b in range(stations):
        choices = np.flatnonzero(candidates[b])
        parts = [groups]
        rows = max(1, _CHUNK // (max(len(choices), 1) * stations))
        found = len(groups)
        for start in range(0, len(groups), rows):
            chunk = groups[start : start + rows]
            row, column = np.nonzero(_joinable(received_w, chunk, b, choices, noise_w, min_sinr))
            larger = chunk[row]
            larger[:, b] = choices[column]
            parts.append(larger)
            found += len(larger)
            if found > max_groups:
                raise TooLargeError(
                    f"{stations} stations and {users} users have more than {max_groups} groups of links that can share"
                    " a block; reduce the instance, raise max_groups, or use local search instead of the exact solver"
                )
        groups = np.concatenate(parts)
    return groups[~_extendable(received_w, groups, candidates, noise_w, min_sinr)]


def _joinable(
    received_w: FloatArray, groups: IntArray, b: int, choices: IntArray, noise_w: float, min_sinr: float
) -> BoolArray:
    """Whether each of `choices` at station b can join each group, (G, len(choices)); station b must be free there."""
    member = groups >= 0
    # (G, B, B): power that the group's user of station q (axis 1) leaves at station p (axis 2).
    power = np.where(member[:, :, None], received_w[groups], 0.0)
    diagonal = np.arange(groups.shape[1])
    own = power[:, diagonal, diagonal]
    power[:, diagonal, diagonal] = 0.0
    interference = power.sum(axis=1)
    slack = np.where(member, own / min_sinr - noise_w - interference, np.inf)
    own_ok = received_w[choices, b] >= min_sinr * (noise_w + interference[:, b, None])
    others_ok = np.all(received_w[choices][None, :, :] <= slack[:, None, :], axis=2)
    absent = np.all(groups[:, None, :] != choices[None, :, None], axis=2)
    return np.asarray(own_ok & others_ok & absent)


def _extendable(
    received_w: FloatArray, groups: IntArray, candidates: BoolArray, noise_w: float, min_sinr: float
) -> BoolArray:
    """Whether some candidate link could still join each group, (G,)."""
    extendable = np.zeros(len(groups), dtype=bool)
    stations = groups.shape[1]
    for b in range(stations):
        choices = np.flatnonzero(candidates[b])
        rows = max(1, _CHUNK // (max(len(choices), 1) * stations))
        open_groups = np.flatnonzero((groups[:, b] < 0) & ~extendable)
        for start in range(0, len(open_groups), rows):
            index = open_groups[start : start + rows]
            extendable[index] = _joinable(received_w, groups[index], b, choices, noise_w, min_sinr).any(axis=1)
    return extendable
