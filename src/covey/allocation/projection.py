"""Projection of selections onto valid plans: violating pairs are dropped and counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from covey.allocation.blocks import match_batch
from covey.arrays import BoolArray, FloatArray, IntArray, dense, joined, parted
from covey.compiled import compiled
from covey.network.limits import RadioLimits
from covey.network.plan import VIOLATION_KINDS, Plan

_UNABLE, _BEYOND_BLOCKS, _SELECTED_TWICE, _NO_BLOCK, _NO_BROADCAST = range(len(VIOLATION_KINDS))

#: Grants blocks (..., U), -1 for none, to users whose station (..., U) is known, -1 for none.
Grant = Callable[[IntArray], IntArray]


def project(
    selected: BoolArray,
    identities: IntArray,
    capable: BoolArray,
    gains: FloatArray,
    samples: FloatArray | IntArray,
    radio: RadioLimits,
    *,
    first_station: int | IntArray = 0,
    grant: Grant | None = None,
) -> Plan:
    """The valid plan that remains of a selection (..., B, U), and its violations.

    identities: (..., U) task of each user; capable: (B, K) tasks of each station; gains: (..., U, B);
    samples: (..., U) weights of the block matching and of the broadcasts; first_station: (...,), or one for all;
    grant: assigns blocks, by default the matching of `assign_blocks`. Leading axes are networks with the same
    stations.

    In this order: users whose task the station cannot run are dropped; users beyond the first R of a
    station, by number, are dropped; a user selected twice stays with the station of largest gain; users
    without a block are dropped; (station, task) broadcasts are sorted by their samples and those that do
    not fit are dropped with their users.
    """
    selected, identities, gains = np.asarray(selected), np.asarray(identities), np.asarray(gains)
    samples, capable = np.asarray(samples, dtype=np.float64), dense(capable, np.bool_)
    _check(selected, identities, capable, gains, samples)
    leading, users = selected.shape[:-2], selected.shape[-1]
    chosen, tasks = joined(selected, np.bool_, 2), joined(identities, np.int64, 1)
    weights = joined(samples, np.float64, 1)

    # Violating pairs (B, U), and for each of VIOLATION_KINDS the violating users.
    involved = np.zeros(chosen.shape, dtype=np.bool_)
    kinds = np.zeros((len(VIOLATION_KINDS), len(chosen), users), dtype=np.bool_)
    gains = joined(gains, np.float64, 2)
    station = _strongest_station(chosen, tasks, capable, gains, int(radio.blocks), involved, kinds)
    if grant is None:
        block, _ = match_batch(gains, station, weights, radio, first_station)
    else:
        granted = np.array(grant(parted(station, leading)))  # a copy, because it is changed below
        block = joined(granted, np.int64, 1)
    active = _broadcasts(station, block, tasks, weights, capable.shape, int(radio.downlink_slots), involved, kinds)
    violators, shares = _shares(involved)
    return Plan(
        station=parted(station, leading),
        block=parted(block, leading),
        active=parted(active, leading),
        violators=parted(violators, leading),
        kinds=dict(zip(VIOLATION_KINDS, kinds.reshape(len(VIOLATION_KINDS), *leading, users), strict=True)),
        station_violations=parted(shares.sum(axis=2), leading),
    )


@compiled
def _strongest_station(
    selected: BoolArray,
    identities: IntArray,
    capable: BoolArray,
    gains: FloatArray,
    blocks: int,
    involved: BoolArray,
    kinds: BoolArray,
) -> IntArray:
    """The station of every user, (N, U), -1 for none, before blocks are granted; records violations."""
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

    Users without a block or without a broadcast lose their station and block, and are recorded.
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
    """The violating users, (N, U), and the share charged to each station, (N, B, U).

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
    selected: BoolArray,
    identities: IntArray,
    capable: BoolArray,
    gains: FloatArray,
    weights: FloatArray | IntArray,
) -> None:
    if selected.ndim >= 2 and capable.ndim == 2:
        *leading, stations, users = selected.shape
        fits = gains.shape == (*leading, users, stations) and len(capable) == stations
        if fits and identities.shape == weights.shape == (*leading, users):
            return
    raise ValueError(
        f"selected {selected.shape}, identities {identities.shape}, capable {capable.shape}, gains {gains.shape} and"
        f" samples {weights.shape} do not fit together; they must be (..., B, U), (..., U), (B, K), (..., U, B) and"
        " (..., U)"
    )
