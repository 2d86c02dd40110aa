"""Noise levels of least leakage: the exact solution of (32) for all tasks at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.arrays import BoolArray, FloatArray, IntArray, dense, joined, parted
from covey.compiled import compiled

#: Relative tolerance by which the floors may exceed the cap of a feasible task.
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class NoiseLevels:
    """Noise of every user, and per task whether cap (11e) and floor (11f) can hold together.

    std: (..., U) standard deviation of each user's noise, 0 where not served.
    leakage: (..., U) as `leakage` of these levels.
    feasible: (..., K) whether the task's floors fit under its cap; where not, `std` is the floor.
    price: (..., K) shadow price: how much the task's leakage, the sum of 1 / (X_i std_i)^2, falls per unit of extra
        total noise, the sum of X_i std_i^2; infinite where infeasible, 0 for a task without users.
    best_floor: (..., K) the largest floor `n_min` that the cap allows; infinite for a task without users.
    """

    std: FloatArray
    leakage: FloatArray
    feasible: BoolArray
    price: FloatArray
    best_floor: FloatArray


def noise_levels(
    samples: npt.ArrayLike, task: npt.ArrayLike, v_max: float, n_min: float, tasks: int | None = None
) -> NoiseLevels:
    """The noise levels of least total leakage under cap (11e) and floor (11f), for every task; exact.

    samples: (..., U) samples X_i; task: (..., U) task that serves each user, -1 if none; v_max: cap on the
    data-weighted mean noise variance of a task; n_min: floor on X_i x std_i; tasks: K, by default
    the largest task + 1. Leading axes are independent networks.

    The variance of user i is max((n_min / X_i)^2, c X_i^-1.5), with c of its task such that the cap is
    tight (errata E30): c solves sum_i max(n_min^2 / X_i, c / sqrt(X_i)) = v_max sum_i X_i.
    """
    size, group, count = _validated(samples, task, v_max, n_min, tasks)
    leading = np.shape(task)[:-1]
    std, leaked, feasible, price, best_floor = _levels_of_all(size, group, count, float(v_max), float(n_min**2))
    return NoiseLevels(
        std=parted(std, leading),
        leakage=parted(leaked, leading),
        feasible=parted(feasible, leading),
        price=parted(price, leading),
        best_floor=parted(best_floor, leading),
    )


def leakage(samples: npt.ArrayLike, std: npt.ArrayLike) -> FloatArray:
    """(..., U) leakage 1 / (X_i std_i)^2 of every user, 0 where std is 0: not served, or noise off."""
    size, level = dense(samples, np.float64), dense(std, np.float64)
    if size.shape != level.shape:
        raise ValueError(f"samples {size.shape} and std {level.shape} must have the same shape")
    return _leaked(size.reshape(-1), level.reshape(-1)).reshape(level.shape)


@compiled
def _leaked(samples: FloatArray, std: FloatArray) -> FloatArray:
    """`leakage` of arrays (U,)."""
    leaked = np.zeros(len(samples))
    for i in range(len(samples)):
        if std[i] > 0:
            product = samples[i] * std[i]
            leaked[i] = 1.0 / (product * product)
    return leaked


@compiled
def _levels(
    samples: FloatArray, group: IntArray, tasks: int, v_max: float, n_min_squared: float, std: FloatArray
) -> tuple[BoolArray, FloatArray, FloatArray]:
    """The fields of `NoiseLevels` after `std`, which is filled in; samples, group, std: (U,)."""
    users = len(samples)
    inverse, floor, slope = np.empty(users), np.empty(users), np.empty(users)
    cap, inverses = np.zeros(tasks), np.zeros(tasks)
    for i in range(users):
        if group[i] >= 0:
            inverse[i], slope[i] = 1.0 / samples[i], 1.0 / np.sqrt(samples[i])
            floor[i] = n_min_squared * inverse[i]
            cap[group[i]] += samples[i]
            inverses[group[i]] += inverse[i]
    for task in range(tasks):
        cap[task] *= v_max
    c = _water_level(floor, slope, group, cap)
    feasible = np.empty(tasks, dtype=np.bool_)
    price, best_floor = np.zeros(tasks), np.empty(tasks)
    for task in range(tasks):
        feasible[task] = n_min_squared * inverses[task] <= cap[task] * (1.0 + _TOLERANCE)
        if not feasible[task]:
            c[task], price[task] = 0.0, np.inf
        elif inverses[task] > 0:
            price[task] = 1.0 / (c[task] * c[task])
        best_floor[task] = np.sqrt(cap[task] / inverses[task]) if inverses[task] > 0 else np.inf
    for i in range(users):
        std[i] = 0.0
        if group[i] >= 0:
            std[i] = np.sqrt(max(floor[i], c[group[i]] * slope[i]) * inverse[i])
    return feasible, price, best_floor


@compiled
def _levels_of_all(
    samples: FloatArray, group: IntArray, tasks: int, v_max: float, n_min_squared: float
) -> tuple[FloatArray, FloatArray, BoolArray, FloatArray, FloatArray]:
    """The fields of `NoiseLevels` of N networks; samples, group: (N, U)."""
    networks = len(samples)
    std, leaked = np.empty(samples.shape), np.empty(samples.shape)
    feasible = np.empty((networks, tasks), dtype=np.bool_)
    price, best_floor = np.empty((networks, tasks)), np.empty((networks, tasks))
    for n in range(networks):
        feasible[n], price[n], best_floor[n] = _levels(samples[n], group[n], tasks, v_max, n_min_squared, std[n])
        leaked[n] = _leaked(samples[n], std[n])
    return std, leaked, feasible, price, best_floor


@compiled
def _water_level(floor: FloatArray, slope: FloatArray, group: IntArray, cap: FloatArray) -> FloatArray:
    """For every task the c with sum_i max(floor_i, c slope_i) = cap, (K,), by Newton's method.

    The sum is convex and piecewise linear in c. Started with no user at the floor, c only decreases and
    users only join the floor; each step halves the excess or the slope, so that a few steps give the exact root,
    without sorting and without the cancellation of running sums.
    """
    users, tasks = len(group), len(cap)
    c, slopes, floors = np.zeros(tasks), np.empty(tasks), np.empty(tasks)
    low = np.zeros(users, dtype=np.bool_)
    joined = True
    while joined:
        for task in range(tasks):
            slopes[task] = floors[task] = 0.0  # of the free users, and of the others
        for i in range(users):
            if group[i] >= 0 and low[i]:
                floors[group[i]] += floor[i]
            elif group[i] >= 0:
                slopes[group[i]] += slope[i]
        for task in range(tasks):
            if slopes[task] > 0:
                c[task] = (cap[task] - floors[task]) / slopes[task]
        joined = False
        for i in range(users):
            # A user is at its floor while c is at most this.
            if group[i] >= 0 and not low[i] and c[group[i]] <= floor[i] / slope[i]:
                low[i] = joined = True
    return c


def _validated(
    samples: npt.ArrayLike, task: npt.ArrayLike, v_max: float, n_min: float, tasks: int | None
) -> tuple[FloatArray, IntArray, int]:
    size, group = np.asarray(samples), np.asarray(task)
    if size.ndim < 1 or group.shape != size.shape:
        raise ValueError(f"samples {size.shape} and task {group.shape} must be two arrays of the same shape (..., U)")
    if group.dtype.kind not in "iu" and group.size:
        raise ValueError(f"task has the type {group.dtype}; give integers, -1 for a user that is not served")
    size, group = joined(size, np.float64, 1), joined(group, np.int64, 1)
    count = int(group.max(initial=-1)) + 1 if tasks is None else int(tasks)
    _check(size, group, v_max, n_min, count)
    return size, group, count


def _check(size: FloatArray, group: IntArray, v_max: float, n_min: float, tasks: int) -> None:
    if not (math.isfinite(v_max) and v_max > 0):
        raise ValueError(f"v_max is {v_max}; the cap on the noise variance must be positive and finite")
    if not (math.isfinite(n_min) and n_min >= 0):
        raise ValueError(f"n_min is {n_min}; the noise floor must be 0 or more and finite")
    usable, largest = _extremes(size, group)
    if largest >= tasks:
        raise ValueError(f"task {largest} is beyond the last of {tasks} tasks, {tasks - 1}")
    if not usable:
        raise ValueError("samples of a served user must be positive and finite; give it task -1 if it has no data")


@compiled
def _extremes(samples: FloatArray, group: IntArray) -> tuple[bool, int]:
    """Whether all served users have positive, finite numbers of samples, and the largest task; both: (N, U)."""
    networks, users = group.shape
    usable, largest = True, -1
    for n in range(networks):
        for i in range(users):
            if group[n, i] >= 0:
                usable &= 0.0 < samples[n, i] < np.inf
                largest = max(largest, group[n, i])
    return usable, largest
