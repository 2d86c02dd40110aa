"""Features: a station's knowledge about each user, scaled to order one.

`paper` is the state of the paper: announced tasks (one-hot) and the station's own distances. `full` adds everything
else the station knows (sample counts, its own link, the round, the site plan) in a form that does not depend on
the number of users, stations or tasks, so that a policy trained at one size runs at another. It uses no
measurements of other stations.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from covey.arrays import FloatArray, IntArray, dense, parted
from covey.compiled import compiled
from covey.network import Observation

FeatureSet = Literal["full", "paper"]
Features = NDArray[np.float32]

#: Columns of `full`, in order.
FULL = (
    "able",  # the station can run the user's announced task
    "distance",  # own distance over the area's diagonal
    "margin",  # own signal-to-noise ratio over the floor, in units of 20 dB
    "samples",  # X_i over the mean of all users
    "largest",  # 1 / (1 + number of users of the same task with more samples)
    "closest",  # 1 / (1 + number of users of the same task that are closer to this station)
    "task_users",  # users that announced the same task, over users per task
    "task_samples",  # their samples, over the samples of an average task
    "turn",  # 1 / (1 + number of stations before this one, counted from the round's first, that can run the task)
    "choices",  # stations that can run the task, over all stations
    "slots",  # downlink slots over announced tasks
    "left",  # rounds left over all rounds
    "kept",  # the user announced the same task in the last round
    "first_round",  # identities are still random
)


def feature_names(kind: FeatureSet, tasks: int) -> tuple[str, ...]:
    """Names of the feature columns."""
    return FULL if kind == "full" else (*(f"task_{k}" for k in range(tasks)), "distance")


def features(observation: Observation, kind: FeatureSet = "full") -> Features:
    """(..., B, U, F): features of each user at each station."""
    batch = observation.as_batch()
    found = paper_features(batch) if kind == "paper" else full_features(batch)
    return parted(found, observation.leading)


def paper_features(seen: Observation) -> Features:
    """(N, B, U, K + 1): announced task one-hot, and the station's distance over the area's diagonal."""
    identities, distances_m = dense(seen.identities, np.int64), dense(seen.distances_m, np.float64)
    return _paper_features(identities, distances_m, seen.limits.tasks, seen.limits.diagonal_m)


@compiled
def _paper_features(identities: IntArray, distances_m: FloatArray, tasks: int, diagonal_m: float) -> Features:
    networks, users, stations = distances_m.shape
    if identities.shape != (networks, users):
        raise ValueError("identities and distances do not fit together; they must be (N, U) and (N, U, B)")
    table = np.zeros((networks, stations, users, tasks + 1), dtype=np.float32)
    for n in range(networks):
        for b in range(stations):
            for i in range(users):
                if 0 <= identities[n, i] < tasks:
                    table[n, b, i, identities[n, i]] = 1.0
                table[n, b, i, tasks] = distances_m[n, i, b] / diagonal_m
    return table


def full_features(seen: Observation) -> Features:
    """(N, B, U, len(FULL)): see `FULL`."""
    (count, users), limits = seen.identities.shape, seen.limits
    tasks, stations = limits.tasks, limits.stations
    shape = (count, stations, users)
    distance = seen.distances_m.transpose(0, 2, 1)
    snr = seen.power_w * seen.gains.transpose(0, 2, 1) / (seen.noise_w * seen.min_sinr)
    # Unavailable users are ranked separately, so that they do not affect the ranks of the others.
    task = np.where(seen.available, seen.identities, tasks)
    members, held = _by_task(seen, tasks)
    announced = (members > 0).sum(axis=1)
    able = limits.capable[:, seen.identities].transpose(1, 0, 2)
    order = seen.turns
    before = (order[None, :] < order[:, None]).astype(np.int64) @ limits.capable.astype(np.int64)  # (B, K)
    columns = {
        "able": able,
        "distance": distance / limits.diagonal_m,
        "margin": np.log10(np.maximum(snr, 1e-12)) / 2.0,
        "samples": (seen.samples / seen.samples.mean(axis=1, keepdims=True))[:, None, :],
        "largest": (1.0 / (1.0 + _rank(-seen.samples.astype(np.float64), task)))[:, None, :],
        "closest": 1.0 / (1.0 + _rank(distance, np.broadcast_to(task[:, None], shape))),
        "task_users": np.take_along_axis(members, seen.identities, axis=1)[:, None, :] * (tasks / users),
        "task_samples": (
            np.take_along_axis(held, seen.identities, axis=1) * tasks / seen.samples.sum(axis=1, keepdims=True)
        )[:, None, :],
        "turn": 1.0 / (1.0 + before[:, seen.identities].transpose(1, 0, 2)),
        "choices": (limits.capable.sum(axis=0)[seen.identities] / stations)[:, None, :],
        "slots": np.minimum(seen.downlink_slots / np.maximum(announced, 1), 4.0)[:, None, None],
        "left": np.array(1.0 - seen.round / limits.rounds),
        "kept": seen.kept[:, None, :],
        "first_round": np.array(float(seen.round == 0)),
    }
    table = np.empty((*shape, len(FULL)), dtype=np.float32)
    for index, name in enumerate(FULL):
        table[..., index] = np.broadcast_to(columns[name], shape)
    return table


def state_vector(observation: Observation) -> Features:
    """(..., U K + U B + 1): identities one-hot, all distances over the diagonal, and the share of rounds played."""
    leading, limits = observation.leading, observation.limits
    one_hot = (observation.identities[..., None] == np.arange(limits.tasks)).reshape(*leading, -1)
    distance = (observation.distances_m / limits.diagonal_m).reshape(*leading, -1)
    played = np.full((*leading, 1), observation.round / limits.rounds)
    return np.concatenate([one_hot, distance, played], axis=-1).astype(np.float32)


def _by_task(seen: Observation, tasks: int) -> tuple[FloatArray, FloatArray]:
    """(N, K) users and samples of every announced task."""
    count = len(seen.identities)
    index = (seen.identities + tasks * np.arange(count)[:, None]).ravel()
    size = count * tasks
    members = np.bincount(index, weights=seen.available.ravel(), minlength=size).reshape(count, tasks)
    held = np.bincount(index, weights=(seen.samples * seen.available).ravel(), minlength=size).reshape(count, tasks)
    return members.astype(np.float64), held.astype(np.float64)


def _rank(value: FloatArray, task: IntArray) -> IntArray:
    """Rank of each user among those of its task along the last axis, by ascending value; ties by number."""
    order = np.lexsort((value, task), axis=-1)
    task_in_order = np.take_along_axis(task, order, axis=-1)
    position = np.broadcast_to(np.arange(value.shape[-1]), value.shape)
    starts = np.ones(value.shape, dtype=bool)
    starts[..., 1:] = task_in_order[..., 1:] != task_in_order[..., :-1]
    first = np.maximum.accumulate(np.where(starts, position, 0), axis=-1)
    rank = np.empty(value.shape, dtype=np.int64)
    np.put_along_axis(rank, order, position - first, axis=-1)
    return rank
