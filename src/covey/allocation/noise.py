"""Noise levels that leak least: the exact solution of (32) for all tasks at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.allocation.arrays import BoolArray, FloatArray, IntArray

#: Relative amount by which the floors may exceed the cap before a task counts as infeasible.
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class NoiseLevels:
    """Noise of every user, and per task whether cap (11e) and floor (11f) can hold together.

    std: (U,) standard deviation of each user's noise, 0 where not served.
    feasible: (K,) whether the task's floors fit under its cap; where not, `std` is the floor.
    price: (K,) how much the task's leakage, the sum of 1 / (X_i std_i)^2, falls per unit of extra
        total noise, the sum of X_i std_i^2; infinite where infeasible, 0 for a task without users.
    best_floor: (K,) the largest floor `n_min` that the cap allows; infinite for a task without users.
    """

    std: FloatArray
    feasible: BoolArray
    price: FloatArray
    best_floor: FloatArray


def noise_levels(
    samples: npt.ArrayLike, task: npt.ArrayLike, v_max: float, n_min: float, tasks: int | None = None
) -> NoiseLevels:
    """The noise levels of least total leakage under cap (11e) and floor (11f), for every task; exact.

    samples: (U,) samples X_i; task: (U,) task that serves each user, -1 if none; v_max: cap on the
    data-weighted mean noise variance of a task; n_min: floor on X_i x std_i; tasks: K, by default
    the largest task + 1.

    The variance of user i is max((n_min / X_i)^2, c X_i^-1.5), with c of its task such that the cap is
    tight (errata E30): c solves sum_i max(n_min^2 / X_i, c / sqrt(X_i)) = v_max sum_i X_i.
    """
    size, group, count = _validated(samples, task, v_max, n_min, tasks)
    served = np.flatnonzero(group >= 0)
    x, k = size[served], group[served]
    if not (x.min(initial=1.0) > 0 and x.max(initial=1.0) < np.inf):
        raise ValueError("samples of a served user must be positive and finite; give it task -1 if it has no data")
    inverse, slope = 1.0 / x, 1.0 / np.sqrt(x)
    floor = n_min**2 * inverse
    cap = v_max * _sums(x, k, count)
    inverses = _sums(inverse, k, count)
    feasible = n_min**2 * inverses <= cap * (1.0 + _TOLERANCE)
    c = np.where(feasible, _water_level(floor, slope, k, cap), 0.0)

    std = np.zeros(len(size))
    std[served] = np.sqrt(np.maximum(floor, c.take(k) * slope) * inverse)
    populated = inverses > 0
    price = np.where(feasible, 0.0, np.inf)
    np.divide(1.0, c * c, out=price, where=populated & feasible)
    best_floor = np.sqrt(np.divide(cap, inverses, out=np.full(count, np.inf), where=populated))
    return NoiseLevels(std, feasible, price, best_floor)


def leakage(samples: npt.ArrayLike, std: npt.ArrayLike) -> float:
    """Total leakage of the served users, the sum of 1 / (X_i std_i)^2; users of std 0 are not served."""
    product = np.asarray(samples, dtype=np.float64) * np.asarray(std, dtype=np.float64)
    return float(np.sum(product[product > 0] ** -2.0))


def _water_level(floor: FloatArray, slope: FloatArray, k: IntArray, cap: FloatArray) -> FloatArray:
    """For every task the c with sum_i max(floor_i, c slope_i) = cap, (K,), by Newton's method.

    The sum is convex and piecewise linear in c. Started where nobody is on the floor, c only falls and users
    only join the floor; each step halves the excess or the slope, so that a handful of steps gives the exact
    root, without sorting and without the digits that differences of running sums lose.
    """
    tasks = len(cap)
    turning = floor / slope  # a user is on its floor while c is at most this
    slopes = _sums(slope, k, tasks)
    c = np.divide(cap, slopes, out=np.zeros(tasks), where=slopes > 0)
    low = np.zeros(len(k), dtype=bool)
    count = 0
    while True:
        low |= c.take(k) <= turning
        if np.count_nonzero(low) == count:
            return c
        count = int(np.count_nonzero(low))
        # One pass for both sums of every task: slopes of the free users, then floors of the others.
        sums = _sums(np.where(low, floor, slope), k + tasks * low, 2 * tasks)
        np.divide(cap - sums[tasks:], sums[:tasks], out=c, where=sums[:tasks] > 0)


def _sums(values: FloatArray, group: IntArray, count: int) -> FloatArray:
    return np.asarray(np.bincount(group, weights=values, minlength=count), dtype=np.float64)


def _validated(
    samples: npt.ArrayLike, task: npt.ArrayLike, v_max: float, n_min: float, tasks: int | None
) -> tuple[FloatArray, IntArray, int]:
    size = np.asarray(samples, dtype=np.float64)
    group = np.asarray(task)
    if size.ndim != 1 or group.shape != size.shape:
        raise ValueError(f"samples {size.shape} and task {group.shape} must be two vectors of the same length")
    if group.dtype.kind not in "iu" and group.size:
        raise ValueError(f"task has the type {group.dtype}; give integers, -1 for a user that is not served")
    group = group.astype(np.int64, copy=False)
    if not (np.isfinite(v_max) and v_max > 0):
        raise ValueError(f"v_max is {v_max}; the cap on the noise variance must be positive and finite")
    if not (np.isfinite(n_min) and n_min >= 0):
        raise ValueError(f"n_min is {n_min}; the noise floor must be 0 or more and finite")
    largest = int(group.max(initial=-1))
    if tasks is not None and largest >= tasks:
        raise ValueError(f"task {largest} is beyond the last of {tasks} tasks, {tasks - 1}")
    return size, group, largest + 1 if tasks is None else tasks
