"""Definitions of terms such as "convergence" that the paper leaves open (errata E44, E45)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from covey.evaluation import Estimate, mean_interval

Floats = NDArray[np.float64]

#: Epochs over which a reward curve is averaged.
WINDOW = 10
#: Tolerance of convergence, as a fraction of the curve's range.
ARRIVED = 0.05


def smoothed(values: Floats, window: int = WINDOW) -> Floats:
    """(n,) trailing moving average over `window` values, over fewer at the beginning."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(stop - window, 0)
    return np.asarray((total[stop] - total[start]) / (stop - start))


def convergence_epoch(rewards: Floats) -> int:
    """First epoch, from 1, after which the smoothed reward stays within 5 % of its range around its last value."""
    curve = smoothed(rewards)
    away = np.abs(curve - curve[-1]) > ARRIVED * np.ptp(curve)
    return int(np.flatnonzero(away)[-1]) + 2 if away.any() else 1


def final_reward(rewards: Floats) -> float:
    """The smoothed reward after the last epoch."""
    return float(smoothed(rewards)[-1])


def change(ours: Iterable[float], theirs: Iterable[float]) -> Estimate | None:
    """Ours minus theirs in per cent of the absolute mean of theirs, paired; None without pairs.

    If the mean of theirs is 0: None, or 0 if all of ours are 0 too.
    """
    first, second = np.array(list(ours), dtype=np.float64), np.array(list(theirs), dtype=np.float64)
    size = abs(float(second.mean())) if len(second) else 0.0
    if size == 0.0:
        return mean_interval(first) if len(first) and not first.any() else None
    return mean_interval(100.0 * (first - second) / size)


def difference(ours: Iterable[float], theirs: Iterable[float], scale: float = 1.0) -> Estimate | None:
    """Ours minus theirs, times `scale`, paired; None without pairs."""
    first, second = np.array(list(ours), dtype=np.float64), np.array(list(theirs), dtype=np.float64)
    return None if len(first) == 0 else mean_interval(scale * (first - second))


def variance_change(ours: Floats, theirs: Floats, resamples: int = 2000) -> Estimate | None:
    """Relative change of the variance over seeds, ours against theirs, in per cent; bootstrap interval.

    ours, theirs: (n,) one value per seed; the seeds are resampled together.
    """
    count = len(ours)
    if count < 3 or np.ptp(theirs) == 0.0:
        return None
    from covey.seeding import generator

    rows = generator(0, "bootstrap").integers(count, size=(resamples, count))
    first, second = ours[rows].var(axis=1), theirs[rows].var(axis=1)
    ratios = 100.0 * (first[second > 0] / second[second > 0] - 1.0)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Estimate(float(100.0 * (ours.var() / theirs.var() - 1.0)), float(low), float(high), count)
