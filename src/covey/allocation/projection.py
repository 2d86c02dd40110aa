"""From what the stations ask for to what can be done: violating selections are projected out and counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from covey.allocation.arrays import BoolArray, FloatArray, IntArray, dense
from covey.allocation.blocks import blocks_of_many
from covey.compiled import compiled

#: Ways in which a selection can break the rules, in the order in which they are projected out (errata E34).
VIOLATION_KINDS = ("unable", "beyond_blocks", "selected_twice", "no_block", "no_broadcast")
_UNABLE, _BEYOND_BLOCKS, _SELECTED_TWICE, _NO_BLOCK, _NO_BROADCAST = range(len(VIOLATION_KINDS))


@dataclass(frozen=True)
class Plan:
    """Who is served where and on which block, and who broke which rule on the way.

    station, block: (U,), -1 for users that are not served; active: (B, K) broadcasts;
    violators: (U,) users that broke any rule (one selected twice may still be served);
    kinds: for each of VIOLATION_KINDS the users (U,) that broke this rule;
    station_violations: (B,) violators charged to each station, summing to the number of violators.
    """

    station: IntArray
    block: IntArray
    active: BoolArray
    violators: BoolArray
    kinds: Mapping[str, BoolArray]
    station_violations: FloatArray

    @property
    def served(self) -> BoolArray:
        """Users that upload in this round, (U,)."""
        return self.station >= 0


@dataclass(frozen=True)
class Plans:
    """The plans of N networks: every array of `Plan` with a first axis of length N."""

    station: IntArray
    block: IntArray
    active: BoolArray
    violators: BoolArray
    kinds: dict[str, BoolArray]
    station_violations: FloatArray

    @property
    def served(self) -> BoolArray:
        """Users that upload in this round, (N, U)."""
        return self.station >= 0


def project(
    selected: BoolArray,
    identities: IntArray,
    capable: BoolArray,
    gains: FloatArray,
    samples: FloatArray | IntArray,
    *,
    blocks: int,
    downlink_slots: int,
    power_w: float,
    noise_w: float,
    min_sinr: float,
    first_station: int = 0,
) -> Plan:
    """The valid plan left of a selection (B, U), and its violations.

    identities: (U,) task of each user; capable: (B, K) tasks of each station; gains: (U, B);
    samples: (U,) weights of the block matching and of the broadcasts; downlink_slots: (station, task)
    broadcasts that fit into a round; the rest as in `assign_blocks`.

    In this order: users whose task the station cannot run are dropped; users beyond the first R of a
    station, by number, are dropped; a user selected twice stays with the suitor of largest gain; users
    without a block are dropped; (station, task) broadcasts are sorted by their samples and those that do
    not fit are dropped with their users.
    """
    plans = project_many(
        np.asarray(selected)[None],
        np.asarray(identities)[None],
        capable,
        np.asarray(gains)[None],
        np.asarray(samples, dtype=np.float64)[None],
        blocks=blocks,
        downlink_slots=downlink_slots,
        power_w=power_w,
        noise_w=noise_w,
        min_sinr=min_sinr,
        first_station=first_station,
    )
    return Plan(
        station=plans.station[0],
        block=plans.block[0],
        active=plans.active[0],
        violators=plans.violators[0],
        kinds={kind: users[0] for kind, users in plans.kinds.items()},
        station_violations=plans.station_violations[0],
    )


def project_many(
    selected: BoolArray,
    identities: IntArray,
    capable: BoolArray,
    gains: FloatArray,
    samples: FloatArray | IntArray,
    *,
    blocks: int,
    downlink_slots: int,
    power_w: float,
    noise_w: float,
    min_sinr: float,
    first_station: IntArray | int = 0,
) -> Plans:
    """The valid plans left of N selections (N, B, U) in networks with the same stations, as `project` makes each.

    identities, samples: (N, U); capable: (B, K); gains: (N, U, B); first_station: (N,), or one for all.
    """
    selected, identities = dense(selected, np.bool_), dense(identities, np.int64)
    gains, weights = dense(gains, np.float64), dense(samples, np.float64)
    capable = dense(capable, np.bool_)
    _check(selected, identities, capable, gains, weights)
    networks, _, users = selected.shape

    # Pairs (B, U) that broke a rule, and for each of VIOLATION_KINDS the users.
    involved = np.zeros(selected.shape, dtype=np.bool_)
    kinds = np.zeros((len(VIOLATION_KINDS), networks, users), dtype=np.bool_)
    station = _suitors(selected, identities, capable, gains, int(blocks), involved, kinds)
    block = blocks_of_many(
        station,
        gains,
        weights,
        blocks=blocks,
        power_w=power_w,
        noise_w=noise_w,
        min_sinr=min_sinr,
        first_station=first_station,
    )
    active = _broadcasts(station, block, identities, weights, capable.shape, int(downlink_slots), involved, kinds)
    violators, shares = _shares(involved)
    return Plans(
        station=station,
        block=block,
        active=active,
        violators=violators,
        kinds=dict(zip(VIOLATION_KINDS, kinds, strict=True)),
        station_violations=shares.sum(axis=2),
    )


@compiled
def _suitors(
    selected: BoolArray,
    identities: IntArray,
    capable: BoolArray,
    gains: FloatArray,
    blocks: int,
    involved: BoolArray,
    kinds: BoolArray,
) -> IntArray:
    """The station of every user, (N, U), -1 for none, before blocks are granted; notes the violations on the way."""
    networks, stations, users = selected.shape
    station = np.full((networks, users), -1)
    for network in range(networks):
        suitors = np.zeros(users, dtype=np.int64)
        wanted = np.zeros((stations, users), dtype=np.bool_)
        for b in range(stations):
            chosen = 0
            for i in range(users):
                if not selected[network, b, i]:
                    continue
                task = identities[network, i]
                if task < 0 or task >= capable.shape[1] or not capable[b, task]:
                    kinds[_UNABLE, network, i] = involved[network, b, i] = True
                    continue
                chosen += 1
                if chosen > blocks:
                    kinds[_BEYOND_BLOCKS, network, i] = involved[network, b, i] = True
                    continue
                wanted[b, i] = True
                suitors[i] += 1
                if suitors[i] == 1 or gains[network, i, b] > gains[network, i, station[network, i]]:
                    station[network, i] = b
        for i in range(users):
            if suitors[i] > 1:
                kinds[_SELECTED_TWICE, network, i] = True
                for b in range(stations):
                    involved[network, b, i] |= wanted[b, i]
    return station


@compiled
def _broadcasts(
    station: IntArray,
    block: IntArray,
    identities: IntArray,
    weights: FloatArray,
    shape: tuple[int, int],
    slots: int,
    involved: BoolArray,
    kinds: BoolArray,
) -> BoolArray:
    """The broadcasts (N, B, K) of most samples, at most `slots`; ties to the lower station, then task.

    Users without a block or without a broadcast lose their station and block, and are noted.
    """
    networks, users = station.shape
    stations, tasks = shape
    active = np.zeros((networks, stations, tasks), dtype=np.bool_)
    total = np.empty((stations, tasks))
    for network in range(networks):
        total[:] = 0.0
        for i in range(users):
            b = station[network, i]
            if block[network, i] >= 0:
                total[b, identities[network, i]] += weights[network, i]
            elif b >= 0:
                kinds[_NO_BLOCK, network, i] = involved[network, b, i] = True
                station[network, i] = -1
        for _ in range(slots):
            most, station_of_most, task_of_most = 0.0, -1, -1
            for b in range(stations):
                for task in range(tasks):
                    if total[b, task] > most and not active[network, b, task]:
                        most, station_of_most, task_of_most = total[b, task], b, task
            if station_of_most < 0:
                break
            active[network, station_of_most, task_of_most] = True
        for i in range(users):
            b = station[network, i]
            if b >= 0 and not active[network, b, identities[network, i]]:
                kinds[_NO_BROADCAST, network, i] = involved[network, b, i] = True
                station[network, i] = block[network, i] = -1
    return active


@compiled
def _shares(involved: BoolArray) -> tuple[BoolArray, FloatArray]:
    """Who broke any rule, (N, U), and every station's share in it, (N, B, U).

    A violation that involves several stations is split equally between them: errata E40.
    """
    networks, stations, users = involved.shape
    violators = np.zeros((networks, users), dtype=np.bool_)
    shares = np.zeros(involved.shape)
    for network in range(networks):
        for i in range(users):
            number = 0
            for b in range(stations):
                number += involved[network, b, i]
            violators[network, i] = number > 0
            for b in range(stations):
                if involved[network, b, i]:
                    shares[network, b, i] = 1.0 / number
    return violators, shares


def _check(
    selected: BoolArray, identities: IntArray, capable: BoolArray, gains: FloatArray, weights: FloatArray
) -> None:
    if selected.ndim == 3 and capable.ndim == 2:
        networks, stations, users = selected.shape
        fits = gains.shape == (networks, users, stations) and len(capable) == stations
        if fits and identities.shape == weights.shape == (networks, users):
            return
    raise ValueError(
        f"selected {selected.shape}, identities {identities.shape}, capable {capable.shape}, gains {gains.shape} and"
        f" samples {weights.shape} do not fit together; they must be (N, B, U), (N, U), (B, K), (N, U, B) and (N, U)"
    )
