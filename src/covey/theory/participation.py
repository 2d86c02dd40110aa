"""Mismatch between the users who step for a task and the group that the task is for.

Two shares describe it: how much of the group's data is missing from the step, and how much of the
step's data comes from strangers (users of other groups). The larger one governs the step's error (docs/theory.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Participation:
    """Q of the corrected theorems, in 0 to 1, split into the contributions of missing users and of strangers.

    Both parts are arrays of one shape, and never negative.
    """

    missing: Array
    wrong: Array

    @property
    def total(self) -> Array:
        """Q."""
        return self.missing + self.wrong

    @classmethod
    def perfect(cls) -> Self:
        """All users of the group take part, and no others."""
        return cls(np.zeros(()), np.zeros(()))


def shares(group: ArrayLike, right: ArrayLike, served: ArrayLike) -> tuple[Array, Array]:
    """Share of the group's samples that is missing, and share of strangers among the served samples.

    group: samples of all users of the group. right: samples of those of them who step for its task.
    served: samples of all who step for it. The second share is 0 where nobody is served.
    """
    whole, inside, all_served = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (group, right, served)))
    if np.any(whole <= 0):
        raise ValueError("a group without samples has no loss; give groups of at least one sample")
    if np.any((inside < 0) | (inside > whole) | (inside > all_served)):
        raise ValueError("the right samples must be a part of the group's samples and of the served ones")
    strangers = np.divide(all_served - inside, all_served, out=np.zeros_like(whole), where=all_served > 0)
    return 1.0 - inside / whole, strangers


def participation(
    group: ArrayLike, right: ArrayLike, served: ArrayLike, *, probability: ArrayLike | None = None
) -> Participation:
    """Q = E[max(missing share, strangers' share)^2], the smallest that the proof allows.

    Arguments as in `shares`, (...), for one outcome of the identification each; or (..., outcomes) with the
    `probability` of each, over which the expectation is taken.
    """
    missing, strangers = shares(group, right, served)
    alone, both = missing**2, np.maximum(missing, strangers) ** 2
    if probability is not None:
        chance = np.asarray(probability, dtype=np.float64)
        if np.any(chance < 0) or not np.allclose(chance.sum(axis=-1), 1.0):
            raise ValueError("probabilities of the outcomes must not be negative and must add up to 1")
        alone, both = (alone * chance).sum(axis=-1), (both * chance).sum(axis=-1)
    return Participation(np.asarray(alone), np.maximum(both - alone, 0.0))


def expected_participation(
    samples: ArrayLike, member: ArrayLike, served: ArrayLike, misidentified: ArrayLike, *, tasks: int
) -> Participation:
    """Q in closed form, an upper bound on `participation` that needs no list of outcomes.

    samples: (..., U) X_i. member: (..., U) bool, who is of the group. served: (..., U) bool, a_i.
    misidentified: (..., U) probability p_i that user i identifies with another group, each of the
    others being equally likely. `missing` is the quantity Q_0 of Eq. (49); the printed theorems use no other
    (errata, Theorem 1 and 2), although strangers who join add to the error.
    """
    if tasks < 2:
        raise ValueError(f"there are {tasks} tasks; with fewer than 2 nobody can be misidentified")
    counts, inside, chosen, chance = np.broadcast_arrays(
        *(np.asarray(values, dtype=np.float64) for values in (samples, member, served, misidentified))
    )
    if np.any((chance < 0) | (chance > 1)):
        raise ValueError("misidentified must be probabilities, from 0 to 1")
    group = (counts * inside).sum(axis=-1)
    if np.any(group <= 0):
        raise ValueError("a group without samples has no loss; give groups of at least one sample")
    missing = 1.0 - (counts * inside * chosen * (1.0 - chance)).sum(axis=-1) / group
    strangers = (counts * (1.0 - inside) * chosen * chance).sum(axis=-1) / (tasks - 1) / group
    return Participation(missing, np.minimum(strangers, 1.0 - missing))


def noise_energy(samples: ArrayLike, served: ArrayLike, noise_std: ArrayLike, *, weights: int) -> Array:
    """E||n||^2 of the noise in a task's averaged step: (...), 0 where nobody is served.

    samples, served: (..., U) X_i and who steps for the task. noise_std: (..., U) standard deviation of the
    noise in each coordinate of user i's *mean* gradient, that is sigma_i / X_i when noise is added to sums.
    weights: D. The mean of N users has weights X_i / N each, which gives D sum X_i^2 std_i^2 / N^2; the
    printed D^2 max std_i^2 of Eq. (51) is larger by D and more (errata, Theorem 1 and 2).
    """
    counts, chosen, std = np.broadcast_arrays(
        *(np.asarray(values, dtype=np.float64) for values in (samples, served, noise_std))
    )
    if np.any(std < 0):
        raise ValueError("noise_std must not be negative")
    total = (counts * chosen).sum(axis=-1)
    energy = weights * ((counts * chosen * std) ** 2).sum(axis=-1)
    return np.asarray(np.divide(energy, total**2, out=np.zeros_like(total), where=total > 0))
