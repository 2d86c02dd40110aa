"""What a station knows of each user, as numbers of order one.

`paper` holds what the paper's state holds: announced tasks (one-hot) and the station's own distances. `full` adds what
the station also knows (sample counts, its own link, the round, the site plan) in a form that does not depend on
the number of users, stations or tasks, so that a policy trained at one size runs at another. Nothing in it comes
from another station's measurements.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from covey.allocation.arrays import dense
from covey.compiled import compiled
from covey.environment.site import Floats, Ints, Site, View

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


def features(view: View, site: Site, kind: FeatureSet = "full") -> Features:
    """(N, B, U, F): what each station knows of each user."""
    return paper_features(view, site) if kind == "paper" else full_features(view, site)


def paper_features(view: View, site: Site) -> Features:
    """(N, B, U, K + 1): announced task one-hot, and the station's distance over the area's diagonal."""
    identities, distances_m = dense(view.identities, np.int64), dense(view.distances_m, np.float64)
    return _paper_features(identities, distances_m, site.tasks, site.diagonal_m)


@compiled
def _paper_features(identities: Ints, distances_m: Floats, tasks: int, diagonal_m: float) -> Features:
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


def full_features(view: View, site: Site) -> Features:
    """(N, B, U, len(FULL)): see `FULL`."""
    count, users = view.identities.shape
    tasks, stations = site.tasks, site.stations
    shape = (count, stations, users)
    distance = view.distances_m.transpose(0, 2, 1)
    snr = site.power_w * view.gains.transpose(0, 2, 1) / (site.noise_w * site.min_sinr)
    # Users that sit out are ranked apart and stand in nobody's way.
    task = np.where(view.available, view.identities, tasks)
    members, held = _by_task(view, tasks)
    announced = (members > 0).sum(axis=1)
    able = site.capable[:, view.identities].transpose(1, 0, 2)
    order = view.turns(site)
    before = (order[None, :] < order[:, None]).astype(np.int64) @ site.capable.astype(np.int64)  # (B, K)
    columns = {
        "able": able,
        "distance": distance / site.diagonal_m,
        "margin": np.log10(np.maximum(snr, 1e-12)) / 2.0,
        "samples": (view.samples / view.samples.mean(axis=1, keepdims=True))[:, None, :],
        "largest": (1.0 / (1.0 + _rank(-view.samples.astype(np.float64), task)))[:, None, :],
        "closest": 1.0 / (1.0 + _rank(distance, np.broadcast_to(task[:, None], shape))),
        "task_users": np.take_along_axis(members, view.identities, axis=1)[:, None, :] * (tasks / users),
        "task_samples": (
            np.take_along_axis(held, view.identities, axis=1) * tasks / view.samples.sum(axis=1, keepdims=True)
        )[:, None, :],
        "turn": 1.0 / (1.0 + before[:, view.identities].transpose(1, 0, 2)),
        "choices": (site.capable.sum(axis=0)[view.identities] / stations)[:, None, :],
        "slots": np.minimum(site.downlink_slots / np.maximum(announced, 1), 4.0)[:, None, None],
        "left": np.array(1.0 - view.round / site.rounds),
        "kept": view.kept[:, None, :],
        "first_round": np.array(float(view.round == 0)),
    }
    table = np.empty((*shape, len(FULL)), dtype=np.float32)
    for index, name in enumerate(FULL):
        table[..., index] = np.broadcast_to(columns[name], shape)
    return table


def state_vector(view: View, site: Site) -> Features:
    """(N, U K + U B + 1): identities one-hot, all distances over the diagonal, and the share of rounds played."""
    count = len(view.identities)
    one_hot = (view.identities[..., None] == np.arange(site.tasks)).reshape(count, -1)
    distance = (view.distances_m / site.diagonal_m).reshape(count, -1)
    played = np.full((count, 1), view.round / site.rounds)
    return np.concatenate([one_hot, distance, played], axis=1).astype(np.float32)


def _by_task(view: View, tasks: int) -> tuple[Floats, Floats]:
    """(N, K) users and samples of every announced task."""
    count = len(view.identities)
    index = (view.identities + tasks * np.arange(count)[:, None]).ravel()
    size = count * tasks
    members = np.bincount(index, weights=view.available.ravel(), minlength=size).reshape(count, tasks)
    held = np.bincount(index, weights=(view.samples * view.available).ravel(), minlength=size).reshape(count, tasks)
    return members.astype(np.float64), held.astype(np.float64)


def _rank(value: Floats, task: Ints) -> Ints:
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
