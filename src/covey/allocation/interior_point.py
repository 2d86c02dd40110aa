"""The noise problem (32) by a general interior-point method, as a cross-check of `noise_levels`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.arrays import FloatArray

#: Relative duality gap at which the barrier method stops.
_GAP = 1e-13
_BARRIER_FACTOR = 0.1
_NEWTON_STEPS = 100


def noise_levels_interior_point(samples: npt.ArrayLike, task: npt.ArrayLike, v_max: float, n_min: float) -> FloatArray:
    """Standard deviations (U,), 0 where not served, by a log-barrier Newton method on each task.

    Arguments as in `noise_levels`. Raises ValueError where a task has no strictly feasible point, because
    the method starts from an interior point.
    """
    size = np.asarray(samples, dtype=np.float64)
    group = np.asarray(task)
    std = np.zeros(len(size))
    for k in np.unique(group[group >= 0]):
        members = np.flatnonzero(group == k)
        x = size[members]
        cap = v_max * x.sum()
        floor = n_min**2 / x / cap
        if floor.sum() >= 1.0:
            raise ValueError(f"the floors of task {k} fill its noise cap; lower n_min or raise v_max")
        std[members] = np.sqrt(_shares(1.0 / x, floor) * cap / x)
    return std


def _shares(weight: FloatArray, floor: FloatArray) -> FloatArray:
    """The y that minimises sum(weight / y) with y >= floor and sum(y) <= 1."""
    weight = weight / np.sqrt(weight).sum() ** 2  # without floors the minimum is then 1
    users = len(weight)
    y = floor + (1.0 - floor.sum()) / (users + 1)
    barrier = 1.0

    def value(y: FloatArray) -> float:
        room, rest = y - floor, 1.0 - y.sum()
        if rest <= 0 or np.any(room <= 0):
            return np.inf
        return float(np.sum(weight / y) - barrier * (np.sum(np.log(room)) + np.log(rest)))

    while (users + 1) * barrier > _GAP:
        barrier *= _BARRIER_FACTOR
        for _ in range(_NEWTON_STEPS):
            room, rest = y - floor, 1.0 - y.sum()
            gradient = -weight / y**2 - barrier / room + barrier / rest
            curvature = 2.0 * weight / y**3 + barrier / room**2
            # The Hessian is diagonal plus rank one: invert it by the Sherman-Morrison formula.
            shared = barrier / rest**2
            direction = gradient / curvature
            direction -= shared * direction.sum() / (1.0 + shared * np.sum(1.0 / curvature)) / curvature
            decrement = float(gradient @ direction)
            if decrement <= 1e-3 * barrier:
                break
            step, start = 1.0, value(y)
            while value(y - step * direction) > start - 1e-4 * step * decrement and step > 1e-12:
                step *= 0.5
            y = y - step * direction
    return np.asarray(y, dtype=np.float64)
