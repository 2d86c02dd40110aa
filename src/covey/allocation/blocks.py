"""Blocks for a given association: the iterated safe Hungarian method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.allocation import kernels
from covey.arrays import BoolArray, FloatArray, IntArray, joined
from covey.compiled import compiled
from covey.network.limits import RadioLimits

#: Relative margin above the SINR floor, so that rounding cannot put a granted link below it.
_SINR_MARGIN = 1e-9
#: Maximum sweeps over all stations, per starting station.
_MAX_SWEEPS = 50


@dataclass(frozen=True)
class BlockAssignment:
    """The block granted to each user.

    station: (..., U) station that selected each user, -1 for none; block: (..., U) granted block, -1 for
    none; sweeps: (...,) sweeps over all stations, summed over starting stations.
    """

    station: IntArray
    block: IntArray
    sweeps: IntArray


def required_sinr(floor: float) -> float:
    """The SINR that the allocation methods require of a link whose floor is `floor`."""
    return floor * (1.0 + _SINR_MARGIN)


def stations_of(selected: BoolArray) -> IntArray:
    """Station of each user, (..., U), -1 for none, of a selection (..., B, U) with at most one station per user."""
    suitors = selected.sum(axis=-2)
    if np.any(suitors > 1):
        user = int(np.nonzero(suitors > 1)[-1][0])
        raise ValueError(f"user {user} is selected by more than one station; keep one station per user")
    return np.where(suitors > 0, selected.argmax(axis=-2), -1).astype(np.int64)


def assign_blocks(
    gains: FloatArray,
    selected: BoolArray,
    weights: FloatArray | IntArray,
    radio: RadioLimits,
    *,
    first_station: int | IntArray = 0,
    max_sweeps: int = _MAX_SWEEPS,
) -> BlockAssignment:
    """Blocks for selected users of large total weight (a heuristic), every granted link at or above the SINR floor.

    gains: (..., U, B) linear; selected: (..., B, U), at most one station per user; weights: (..., U) positive;
    first_station: (...,), or one for all. Leading axes are independent networks.

    Stations take turns (errata E24), starting with `first_station`. A station finds the maximum-weight
    matching of its users to blocks, where a pair is infeasible if the user would miss the floor or push a granted
    link elsewhere below it; ties keep the current block. When a sweep changes nothing, stations may also
    displace links elsewhere, at the cost of their weight, if that serves more in total. The served weight
    only grows, so both phases terminate. The result depends on the starting station, so every station is tried and
    the best result returned.
    """
    selected, gains = np.asarray(selected), np.asarray(gains)
    if selected.ndim < 2 or gains.shape != (*selected.shape[:-2], *selected.shape[:-3:-1]):
        raise ValueError(
            f"gains {gains.shape} and selected {selected.shape} do not fit together; they must be (..., U, B) and"
            " (..., B, U)"
        )
    return match_blocks(
        gains, stations_of(selected), weights, radio, first_station=first_station, max_sweeps=max_sweeps
    )


def match_blocks(
    gains: FloatArray,
    station: IntArray,
    weights: FloatArray | IntArray,
    radio: RadioLimits,
    *,
    first_station: int | IntArray = 0,
    max_sweeps: int = _MAX_SWEEPS,
) -> BlockAssignment:
    """`assign_blocks` for users whose station (..., U) is known, -1 for none."""
    station, gains, weights = np.asarray(station), np.asarray(gains), np.asarray(weights, dtype=np.float64)
    if gains.ndim < 2 or not gains.shape[:-1] == station.shape == weights.shape:
        raise ValueError(
            f"station {station.shape}, gains {gains.shape} and weights {weights.shape} do not fit together;"
            " they must be (..., U), (..., U, B) and (..., U)"
        )
    if station.max(initial=-1) >= gains.shape[-1]:
        raise ValueError(f"station {station.max()} is beyond the last of {gains.shape[-1]}; number them from 0")
    at = joined(station, np.int64, 1)
    block, sweeps = match_batch(
        joined(gains, np.float64, 2), at, joined(weights, np.float64, 1), radio, first_station, max_sweeps
    )
    return BlockAssignment(at.reshape(station.shape), block.reshape(station.shape), sweeps.reshape(station.shape[:-1]))


def match_batch(
    gains: FloatArray,
    station: IntArray,
    weights: FloatArray,
    radio: RadioLimits,
    first_station: int | IntArray,
    max_sweeps: int = _MAX_SWEEPS,
) -> tuple[IntArray, IntArray]:
    """Blocks (N, U) and sweeps (N,) of `match_blocks`, for dense arrays (N, U, B), (N, U), (N, U)."""
    _check(gains, station, weights)
    first = first_station if isinstance(first_station, int) else np.ravel(first_station)
    return kernels.match_all(
        station,
        radio.power_w * gains,
        weights,
        np.full(len(station), first, dtype=np.int64),
        int(max_sweeps),
        int(radio.blocks),
        float(radio.noise_w),
        float(required_sinr(radio.min_sinr)),
    )


def _check(gains: FloatArray, station: IntArray, weights: FloatArray) -> None:
    if not _weights_fit(station.ravel(), weights.ravel()):
        raise ValueError("weights of selected users must be positive and finite; do not select users without weight")
    if not _gains_fit(gains.ravel()):
        raise ValueError("gains must be finite and not negative")


@compiled
def _weights_fit(station: IntArray, weights: FloatArray) -> bool:
    """Whether all weights of users with a station are positive and finite; both: (U,)."""
    for i in range(len(station)):  # noqa: SIM110, generators are not compiled
        if station[i] >= 0 and not 0.0 < weights[i] < np.inf:
            return False
    return True


@compiled
def _gains_fit(gains: FloatArray) -> bool:
    """Whether no gain is negative, infinite or NaN."""
    for gain in gains:  # noqa: SIM110, generators are not compiled
        if not 0.0 <= gain < np.inf:
            return False
    return True
