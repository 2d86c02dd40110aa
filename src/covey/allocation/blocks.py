"""Blocks for a given association: the iterated safe Hungarian method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from covey.allocation.arrays import BoolArray, FloatArray, IntArray

#: Every method asks for this much more than the SINR floor, so that no rounding can put a granted link below it.
_SINR_MARGIN = 1e-9
#: Bonus of the current block, as a share of the largest weight: decides ties and nothing else.
_KEEP_BONUS = 1e-9
#: Relative gain below which a matching counts as no better than the current one.
_MIN_GAIN = 1e-12


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
    """Station of each user, (U,), -1 for none, of a selection (B, U) with at most one station per user."""
    if np.any(selected.sum(axis=0) > 1):
        user = int(np.flatnonzero(selected.sum(axis=0) > 1)[0])
        raise ValueError(f"user {user} is selected by more than one station; keep one station per user")
    return np.where(selected.any(axis=0), selected.argmax(axis=0), -1).astype(np.int64)


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
    max_sweeps: int = 50,
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
    weights = np.asarray(weights, dtype=np.float64)
    _check(gains, selected, weights, blocks, min_sinr)
    received_w = power_w * gains
    floor = required_sinr(min_sinr)
    stations = len(selected)
    order = (first_station + np.arange(stations)) % stations
    in_reach = selected & (power_w * gains.T / floor >= noise_w)
    goal = float(weights[in_reach.any(axis=0)].sum()) * (1.0 - _MIN_GAIN)

    grid = _Grid(received_w, in_reach, weights, blocks, noise_w, floor)
    holder, served_weight, sweeps = grid.user, 0.0, 0
    for start in range(stations):
        grid.clear()
        turn = np.roll(order, -start).tolist()
        sweeps += grid.improve(turn, max_sweeps, displace=False)
        if grid.served_weight < goal:
            sweeps += grid.improve(turn, max_sweeps, displace=True)
        if grid.served_weight > served_weight * (1.0 + _MIN_GAIN):
            holder, served_weight = grid.user, grid.served_weight
        if served_weight >= goal:
            break
    block = np.full(len(gains), -1, dtype=np.int64)
    granted = holder >= 0
    block[holder[granted]] = np.nonzero(granted)[1]
    return BlockAssignment(station, block, sweeps)


class _Grid:
    """The granted links: which user holds each (station, block), and what it leaves at the other stations."""

    def __init__(
        self,
        received_w: FloatArray,
        selected: BoolArray,
        weights: FloatArray,
        blocks: int,
        noise_w: float,
        floor: float,
    ) -> None:
        self._shape = (len(selected), blocks)
        self._members = [np.flatnonzero(row) for row in selected]
        self._received_w = [received_w[members] for members in self._members]
        # Interference that each member can bear at its own station.
        self._bearable_w = [row[:, b] / floor - noise_w for b, row in enumerate(self._received_w)]
        self._weights = [weights[members] for members in self._members]
        self._bonus = _KEEP_BONUS * float(weights.max(initial=0.0))
        self.clear()

    def clear(self) -> None:
        """Withdraw all grants."""
        stations, blocks = self._shape
        self.user = np.full((stations, blocks), -1, dtype=np.int64)
        self._member = np.full((stations, blocks), -1, dtype=np.int64)
        # (B, R, B): what the holder of a (station, block) leaves at every other station; 0 at its own.
        self._spill_w = np.zeros((stations, blocks, stations))
        # (B, R): the interference that the holder of a (station, block) can bear.
        self._bears_w = np.full((stations, blocks), np.inf)
        self._weight = np.zeros((stations, blocks))

    @property
    def served_weight(self) -> float:
        """Total weight of the granted links."""
        return float(self._weight.sum())

    def improve(self, turn: list[int], max_sweeps: int, *, displace: bool) -> int:
        """Let the stations take turns until none can serve more; the number of sweeps."""
        changes = 0
        seen = [-1] * len(turn)
        for sweep in range(max_sweeps):
            before = changes
            for b in turn:
                # Nothing to gain where everybody is served, or where nothing changed since the last look.
                if seen[b] == changes or np.count_nonzero(self._member[b] >= 0) == len(self._members[b]):
                    continue
                changes += self._rematch(b, displace)
                seen[b] = changes
            if changes == before:
                return sweep + 1
        return max_sweeps

    def _rematch(self, b: int, displace: bool) -> bool:
        """Match the users of station b anew; whether that serves more weight in total."""
        weights, bearable_w = self._weights[b][:, None], self._bearable_w[b][:, None]
        spill_w = self._spill_w.copy()
        spill_w[b] = 0.0
        interference_w = spill_w.sum(axis=0)  # (R, B)
        slack_w = self._bears_w.T - interference_w
        slack_w[:, b] = np.inf
        breaks = self._received_w[b][:, None, :] > slack_w  # (members, R, B)
        if displace:
            _add_too_loud(breaks, spill_w[:, :, b].T, bearable_w)
            value = weights - (breaks * self._weight.T).sum(axis=2)
        else:
            value = weights * (~breaks.any(axis=2) & (interference_w[:, b] <= bearable_w))

        held = np.flatnonzero(self._member[b] >= 0)
        holder = self._member[b, held]
        value[holder, held] = weights[holder, 0]
        score = np.maximum(value, 0.0)
        score[holder, held] += self._bonus
        row, column = linear_sum_assignment(score, maximize=True)
        granted = value[row, column] > 0
        row, column = row[granted], column[granted]
        if value[row, column].sum() <= self._weight[b].sum() * (1.0 + _MIN_GAIN):
            return False
        if displace:
            breaks[holder, held] = False
            pair, elsewhere = np.nonzero(breaks[row, column])
            self._release(elsewhere, column[pair])
        self._release(b, held)
        self._grant(b, column, row)
        return True

    def _release(self, station: int | IntArray, block: IntArray) -> None:
        self.user[station, block] = -1
        self._member[station, block] = -1
        self._spill_w[station, block] = 0.0
        self._bears_w[station, block] = np.inf
        self._weight[station, block] = 0.0

    def _grant(self, b: int, block: IntArray, member: IntArray) -> None:
        self.user[b, block] = self._members[b][member]
        self._member[b, block] = member
        self._spill_w[b, block] = self._received_w[b][member]
        self._spill_w[b, block, b] = 0.0
        self._bears_w[b, block] = self._bearable_w[b][member]
        self._weight[b, block] = self._weights[b][member]


def _add_too_loud(breaks: BoolArray, interference_w: FloatArray, bearable_w: FloatArray) -> None:
    """Add to `breaks` (members, R, B) the strongest other interferers, as few as make the rest bearable.

    interference_w: (R, B) at the members' station; bearable_w: (members, 1).
    """
    left_w = np.where(breaks, 0.0, interference_w)
    member, block = np.nonzero(left_w.sum(axis=2) > bearable_w)
    if len(member) == 0:
        return
    order = np.argsort(-left_w[member, block], axis=1)
    ranked_w = np.take_along_axis(left_w[member, block], order, axis=1)
    rest_w = np.cumsum(ranked_w[:, ::-1], axis=1)[:, ::-1]
    pair, rank = np.nonzero((rest_w > bearable_w[member]) & (ranked_w > 0))
    breaks[member[pair], block[pair], order[pair, rank]] = True


def _check(gains: FloatArray, selected: BoolArray, weights: FloatArray, blocks: int, min_sinr: float) -> None:
    users = len(gains)
    if gains.ndim != 2 or selected.shape != gains.shape[::-1] or weights.shape != (users,):
        raise ValueError(
            f"gains {gains.shape}, selected {selected.shape} and weights {weights.shape} do not fit together;"
            " they must be (U, B), (B, U) and (U,)"
        )
    chosen = weights[selected.any(axis=0)]
    if not np.all(np.isfinite(chosen) & (chosen > 0)):
        raise ValueError("weights of selected users must be positive and finite; do not select users without weight")
    if not np.all(np.isfinite(gains) & (gains >= 0)):
        raise ValueError("gains must be finite and not negative")
    if blocks < 1 or not min_sinr > 0:
        raise ValueError(f"blocks ({blocks}) must be at least 1 and min_sinr ({min_sinr}) positive")
