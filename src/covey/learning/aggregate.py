"""What the stations do with the uploads that they let in: average them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Index = npt.NDArray[np.integer]


def aggregate_models(
    uploads: Array, task: Index, station: Index, samples: Index, models: Array, stations: int
) -> Array:
    """New models (K, D) from `uploads` (n, D) of users with `task`, `station` and `samples`, all (n,).

    A station averages the uploads of a task weighted by samples, Eq. (7), and the stations' averages
    are averaged weighted by the samples behind them, Eq. (8) without its stray factor (errata E9). A
    task without uploads keeps its model bit for bit.
    """
    _check(uploads, task, station, samples, models, stations)
    new = models.copy()
    for k in np.unique(task):
        total = np.zeros(models.shape[1])
        behind = 0.0
        for b in range(stations):
            members = np.flatnonzero((task == k) & (station == b))
            if members.size:
                mean, weight = _weighted_mean(uploads[members], samples[members])
                total += weight * mean
                behind += weight
        new[k] = total / behind
    return new


def _weighted_mean(uploads: Array, samples: Index) -> tuple[npt.NDArray[np.float64], float]:
    total = np.zeros(uploads.shape[1])
    for upload, count in zip(uploads, samples, strict=True):
        total += float(count) * upload.astype(np.float64)
    weight = float(samples.sum())
    return total / weight, weight


def _check(uploads: Array, task: Index, station: Index, samples: Index, models: Array, stations: int) -> None:
    count = len(uploads)
    for name, values, limit in (("task", task, len(models)), ("station", station, stations)):
        if values.shape != (count,):
            raise ValueError(f"{name} has shape {values.shape} for {count} uploads; give one number for each")
        if count and not (values.min() >= 0 and values.max() < limit):
            raise ValueError(f"{name} has numbers from {values.min()} to {values.max()}; allowed are 0 to {limit - 1}")
    if samples.shape != (count,) or (count and samples.min() < 1):
        raise ValueError(f"samples must be {count} numbers of at least 1, one for each upload")
    if uploads.shape != (count, models.shape[1]):
        raise ValueError(f"uploads have shape {uploads.shape}, but models have {models.shape[1]} weights")
