"""Blocks for a given association: the iterated safe Hungarian method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.allocation import kernels
from covey.allocation.arrays import BoolArray, FloatArray, IntArray, dense
from covey.compiled import compiled

#: Every method asks for this much more than the SINR floor, so that no rounding can put a granted link below it.
_SINR_MARGIN = 1e-9
#: Sweeps over all stations after which a matching is left as it is, for each station that comes first.
_MAX_SWEEPS = 50


@dataclass(frozen=True)
class BlockAssignment:
    """Who got which block.

    station: (U,) station that selected each user, -1 for none; block: (U,) granted block, -1 for
    none; sweeps: rounds over all stations that it took, over all starts.
    """

    station: IntArray
    block: IntArray
    sweeps: int


def min_sinr(rate_bps: float, bandwidth_hz: float) -> float:
    """The SINR (linear) at which a block of this bandwidth carries this rate."""
    return float(2.0 ** (rate_bps / bandwidth_hz) - 1.0)


def required_sinr(floor: float) -> float:
    """The SINR that the allocation methods ask of a link whose floor is `floor`."""
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
    *,
    blocks: int,
    power_w: float,
    noise_w: float,
    min_sinr: float,
    first_station: int = 0,
    max_sweeps: int = _MAX_SWEEPS,
) -> BlockAssignment:
    """A block for as much weight of selected users as found, every granted link at or above the SINR floor.

    gains: (U, B) linear; selected: (B, U), at most one station per user; weights: (U,) positive;
    power_w: transmit power of a user; noise_w: noise in a block; min_sinr: SINR floor (linear).

    Stations take turns (errata E24), starting with `first_station`. A station matches its users to blocks
    with the largest weight, where a pair is forbidden if the user would miss the floor or push a granted
    link elsewhere below it; ties keep the current block. When a sweep changes nothing, stations may also
    displace links elsewhere, at the price of their weight, if that serves more in total. The served weight
    only grows, so both phases end. Every station is tried as the first one and the best result returned:
    who comes first shapes the outcome.
    """
    station = stations_of(selected)
    if gains.ndim != 2 or selected.shape != gains.shape[::-1] or np.shape(weights) != (len(gains),):
        raise ValueError(
            f"gains {gains.shape}, selected {selected.shape} and weights {np.shape(weights)} do not fit together;"
            " they must be (U, B), (B, U) and (U,)"
        )
    _check(dense(gains, np.float64), station, dense(weights, np.float64), blocks, min_sinr)
    grid = _Grid(power_w * gains, selected, weights, blocks, noise_w, required_sinr(min_sinr))
    sweeps = grid.match(first_station, max_sweeps)
    block = np.full(len(gains), -1, dtype=np.int64)
    holder, n = np.nonzero(grid.user >= 0)
    block[grid.user[holder, n]] = n
    return BlockAssignment(station, block, sweeps)


def blocks_of_many(
    station: IntArray,
    gains: FloatArray,
    weights: FloatArray | IntArray,
    *,
    blocks: int,
    power_w: float,
    noise_w: float,
    min_sinr: float,
    first_station: IntArray | int = 0,
) -> IntArray:
    """The blocks (N, U), -1 for none, that `assign_blocks` grants in each of N networks.

    station: (N, U) station of each user, -1 for none; gains: (N, U, B); weights: (N, U); first_station: (N,), or one
    for all.
    """
    station, gains, size = dense(station, np.int64), dense(gains, np.float64), dense(weights, np.float64)
    if gains.shape[:2] != station.shape or gains.ndim != 3 or size.shape != station.shape:
        raise ValueError(
            f"station {station.shape}, gains {gains.shape} and weights {size.shape} do not fit together;"
            " they must be (N, U), (N, U, B) and (N, U)"
        )
    if station.max(initial=-1) >= gains.shape[2]:
        raise ValueError(f"station {station.max()} is beyond the last of {gains.shape[2]}; number them from 0")
    _check(gains, station, size, blocks, min_sinr)
    return kernels.match_all(
        station,
        power_w * gains,
        size,
        np.full(len(station), first_station, dtype=np.int64),
        _MAX_SWEEPS,
        int(blocks),
        float(noise_w),
        float(required_sinr(min_sinr)),
    )


class _Grid:
    """The granted links of one network: `user` (B, R) holds each (station, block), -1 for none."""

    def __init__(
        self,
        received_w: FloatArray,
        selected: BoolArray,
        weights: FloatArray | IntArray,
        blocks: int,
        noise_w: float,
        floor: float,
    ) -> None:
        self._links = kernels.links_of(
            stations_of(selected),
            dense(received_w, np.float64),
            dense(weights, np.float64),
            float(noise_w),
            float(floor),
        )
        self.user: IntArray = np.full((len(selected), int(blocks)), -1, dtype=np.int64)

    def match(self, first_station: int, max_sweeps: int) -> int:
        """Grant the best matching over all first stations; the number of sweeps."""
        return kernels.match(int(first_station), int(max_sweeps), self.user, self._links)

    def improve(self, turn: list[int], max_sweeps: int, *, displace: bool) -> int:
        """Let the stations take turns until none can serve more; the number of sweeps."""
        work = kernels.workspace_of(self._links, self.user.shape[1])
        return kernels.improve(dense(turn, np.int64), max_sweeps, displace, self.user, self._links, work)

    def _grant(self, b: int, block: IntArray, member: IntArray) -> None:
        self.user[b, block] = self._links.members[b, member]


def _check(gains: FloatArray, station: IntArray, weights: FloatArray, blocks: int, min_sinr: float) -> None:
    if not _weights_fit(station.ravel(), weights.ravel()):
        raise ValueError("weights of selected users must be positive and finite; do not select users without weight")
    if not _gains_fit(gains.ravel()):
        raise ValueError("gains must be finite and not negative")
    if blocks < 1 or not min_sinr > 0:
        raise ValueError(f"blocks ({blocks}) must be at least 1 and min_sinr ({min_sinr}) positive")


@compiled
def _weights_fit(station: IntArray, weights: FloatArray) -> bool:
    """Whether all weights of users with a station are positive and finite; both: (U,)."""
    for i in range(len(station)):  # noqa: SIM110, generators are not compiled
        if station[i] >= 0 and not 0.0 < weights[i] < np.inf:
            return False
    return True


@compiled
def _gains_fit(gains: FloatArray) -> bool:
    """Whether no gain is negative, infinite or no number."""
    for gain in gains:  # noqa: SIM110, generators are not compiled
        if not 0.0 <= gain < np.inf:
            return False
    return True
