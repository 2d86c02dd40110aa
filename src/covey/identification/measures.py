"""How well users were grouped, where the true groups are known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def clustering_accuracy(identities: Ints, groups: Ints) -> float:
    """Fraction of users in the right group under the best naming of the tasks (errata E18).

    The naming is one to one, so that with K tasks and G groups min(K, G) tasks stand for a group; users of the other
    tasks, and of groups that no task stands for, are not right.

    Users whose identity or group is not known (-1) do not count; without any others it is undefined.
    """
    identities, groups = _known(identities, groups)
    if len(groups) == 0:
        return float("nan")
    counts = count_pairs(identities, groups, int(identities.max()) + 1, int(groups.max()) + 1)
    group = best_match(counts)
    named = np.flatnonzero(group >= 0)
    return float(counts[named, group[named]].sum() / len(identities))


def matching(identities: Ints, groups: Ints, tasks: int, count: int | None = None) -> Ints:
    """The group that each task stands for, (K,), by the one-to-one naming that puts most users right.

    count: number of groups, G, by default as many as `groups` names. min(K, G) tasks get a group; the others get
    -1, as all do if no group is known.
    """
    identities, groups = _known(identities, groups)
    if len(groups) == 0:
        return np.full(tasks, -1, dtype=np.int64)
    return best_match(count_pairs(identities, groups, tasks, int(groups.max()) + 1 if count is None else count))


def adjusted_rand_index(identities: Ints, groups: Ints) -> float:
    """Agreement of two groupings over pairs of users: 1 when equal, about 0 when independent.

    Users whose identity or group is not known (-1) do not count; without any others it is undefined.
    """
    identities, groups = _known(identities, groups)
    if len(groups) == 0:
        return float("nan")
    counts = count_pairs(identities, groups, int(identities.max()) + 1, int(groups.max()) + 1)

    def pairs(numbers: npt.NDArray[np.int64]) -> float:
        return float((numbers * (numbers - 1) // 2).sum())

    both, first, second = pairs(counts), pairs(counts.sum(1)), pairs(counts.sum(0))
    expected = first * second / max(pairs(counts.sum(keepdims=True)), 1.0)
    largest = (first + second) / 2
    return 1.0 if largest == expected else (both - expected) / (largest - expected)


def _known(identities: Ints, groups: Ints) -> tuple[Ints, Ints]:
    """Both labels of the users who have both."""
    if identities.shape != groups.shape:
        raise ValueError(
            f"labels of {identities.shape} and {groups.shape} users cannot be compared; give one for each user"
        )
    known = (identities != -1) & (groups != -1)
    return identities[known], groups[known]


def count_pairs(rows: Ints, columns: Ints, height: int, width: int) -> Ints:
    """How often each pair of labels occurs, (height, width)."""
    if rows.shape != columns.shape:
        raise ValueError(f"labels of {rows.shape} and {columns.shape} users cannot be compared; give one for each user")
    for labels, size in ((rows, height), (columns, width)):
        if labels.size and not (labels.min() >= 0 and labels.max() < size):
            raise ValueError(f"labels must be numbers from 0 to {size - 1}")
    table = np.zeros((height, width), dtype=np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def best_match(counts: Ints) -> Ints:
    """For each row the column of a one-to-one matching with the largest sum; -1 for rows beyond the columns."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(counts, maximize=True)
    found = np.full(len(counts), -1, dtype=np.int64)
    found[rows] = columns
    return found
