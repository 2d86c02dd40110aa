"""`mean`: the data-weighted mean at each station, then over stations, Eqs. (7) and (8)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.arrays import read_only
from covey.compiled import compiled
from covey.federated.aggregation.protocol import Accepted, Aggregation

Array = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.integer]

#: Weights averaged per chunk: few enough to stay in cache while all uploads are added.
_CHUNK = 1 << 14


class Mean(Aggregation):
    """Mean of the uploads weighted by their users' samples; under masks the opened sums give the same mean."""

    needs: ClassVar[frozenset[str]] = frozenset()
    weighted_mean: ClassVar[bool] = True

    def combine(self, accepted: Accepted) -> Array:
        """New models (K, D)."""
        return aggregate_models(
            accepted.uploads, accepted.task, accepted.station, accepted.samples, accepted.models, accepted.stations
        )


def aggregate_models(
    uploads: Array, task: Index, station: Index, samples: Index, models: Array, stations: int
) -> Array:
    """New models (K, D) from `uploads` (n, D) of users with `task`, `station` and `samples`, all (n,).

    A station averages the uploads of a task weighted by samples, Eq. (7), and the stations' averages
    are averaged weighted by the samples behind them, Eq. (8) without its stray factor (errata E9). A
    task without uploads keeps its model bit for bit.
    """
    _check(uploads, task, station, samples, models, stations)
    # Read-only also where they are not, as the kernel is compiled anew for arrays that can be written.
    uploads, samples = read_only(np.ascontiguousarray(uploads)), read_only(samples.astype(np.int64))
    new = models.copy()
    for k in np.unique(task):
        groups = [np.flatnonzero((task == k) & (station == b)) for b in range(stations)]
        groups = [members for members in groups if members.size]
        weights = [float(samples[members].sum()) for members in groups]
        for begin in range(0, models.shape[1], _CHUNK):
            chunk = new[k, begin : begin + _CHUNK]
            total = np.zeros(len(chunk))
            for members, weight in zip(groups, weights, strict=True):
                own = np.zeros(len(chunk))
                _add_weighted(uploads, members, samples, begin, own)
                total += weight * (own / weight)
            chunk[:] = total / sum(weights)
    return new


@compiled
def _add_weighted(uploads: Array, members: Index, samples: Index, begin: int, total: Floats) -> None:
    """Add weights `begin` to `begin` + d of the uploads of `members`, times their samples, to `total` (d,)."""
    for member in members:
        total += np.float64(samples[member]) * uploads[member, begin : begin + len(total)]


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
