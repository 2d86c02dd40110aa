"""Means with confidence intervals, interquartile means with bootstrap intervals, rank correlation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.seeding import generator

Floats = NDArray[np.float64]

#: Resamples of a bootstrap interval.
_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95 % confidence interval and sample size."""

    value: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2.0

    def to_dict(self) -> dict[str, float]:
        """Plain values for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n}


def mean_interval(values: Floats) -> Estimate:
    """Mean with its 95 % interval by Student's t; for a single value, low and high are the value itself."""
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return Estimate(mean, mean, mean, n)
    from scipy import stats  # takes half a second to import, and only comparisons need it

    half = float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return Estimate(mean, mean - half, mean + half, n)


def interquartile_mean(values: Floats, seed: int = 0) -> Estimate:
    """Mean of the middle half with its 95 % bootstrap interval.

    values: (n,), or (runs, n) for several runs on the same n layouts: both runs and layouts are then resampled.
    """
    from scipy import stats

    table = np.atleast_2d(values)
    rng = generator(seed, "bootstrap")
    rows = rng.integers(len(table), size=(_RESAMPLES, len(table), 1))
    columns = rng.integers(table.shape[1], size=(_RESAMPLES, 1, table.shape[1]))
    resampled = stats.trim_mean(table[rows, columns].reshape(_RESAMPLES, -1), 0.25, axis=1)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Estimate(float(stats.trim_mean(table.ravel(), 0.25)), float(low), float(high), table.size)


def rank_correlation(first: Floats, second: Floats) -> float:
    """Kendall's rank correlation of two lists of scores of the same policies."""
    from scipy import stats

    return float(stats.kendalltau(first, second).statistic)
