"""A plausible history of any size, made from random arrays without running a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from covey.identification import adjusted_rand_index, clustering_accuracy
from covey.network import VIOLATION_KINDS
from covey.privacy import Ledger, epsilon, release_rho
from covey.scenario.load import scenario_from_dict
from covey.simulation import History, RoundRecord, UserRecord


def history_of(
    users: int = 12,
    stations: int = 4,
    tasks: int = 4,
    rounds: int = 15,
    blocks: int = 4,
    seed: int = 0,
    *,
    groups: int | None = None,
    played: int | None = None,
    policy: str = "greedy",
    scenario: dict[str, Any] | None = None,
) -> History:
    """A history with `played` of `rounds` rounds; `scenario` updates sections; as many groups as tasks by default."""
    kinds = groups or tasks
    rng = np.random.default_rng(seed)
    side = 500.0 * max(1.0, np.sqrt(stations / 4))
    table: dict[str, Any] = {
        "name": "made",
        "description": "Random numbers in the shape of a run.",
        "network": {
            "users": users, "stations": stations, "tasks": tasks, "blocks": blocks, "area_m": [side, 0.8 * side],
            "tasks_per_station": max(3, tasks - stations + 1),
        },
        "privacy": {"noise": "replay"},
        **({} if groups is None else {"data": {"groups": groups}}),
    }  # fmt: skip
    for key, value in (scenario or {}).items():
        table[key] = {**table.get(key, {}), **value} if isinstance(value, dict) else value
    made = scenario_from_dict(table)
    samples = rng.integers(200, 601, users)
    group = rng.permutation(np.arange(users) % kinds)
    clip = made.training.clip * samples.mean() / samples
    area = np.array(made.network.area_m)
    stations_m = rng.uniform(0.1, 0.9, (stations, 2)) * area
    positions = rng.uniform(0.02, 0.98, (users, 2)) * area
    ledger = Ledger(users, delta=made.privacy.delta, adjacency=made.privacy.adjacency)
    task_of_group = rng.permutation(max(tasks, kinds)) % tasks
    start_loss = 2.3 + 0.1 * rng.standard_normal(kinds)
    history = History(
        scenario=made,
        seed=seed,
        policy=policy,
        rounds=rounds,
        samples=samples,
        groups=group,
        stations_m=stations_m,
        clip=clip,
        start={
            "loss": float(start_loss.mean()),
            "accuracy": 0.1,
            "group_loss": start_loss.tolist(),
            "group_accuracy": [0.1] * kinds,
        },
        models=np.zeros((tasks, 3), dtype=np.float32),
        ledger=ledger,
        upload_bits=2.0e4,
        served_rounds=np.zeros(users, dtype=np.int64),
    )
    speed = rng.uniform(0.05, 0.25, kinds)
    for number in range(1, (rounds if played is None else played) + 1):
        positions = np.clip(positions + rng.normal(0, 0.01, positions.shape) * area, 0, area)
        right = rng.random(users) < 1 - 0.75 * np.exp(-number / 5)
        identity = np.where(right, task_of_group[group], rng.integers(0, tasks, users))
        record = _round(history, rng, number, positions, identity, start_loss[group] * np.exp(-speed[group] * number))
        history.records.append(record)
        history.served_rounds += record.users.station >= 0
    return history


def _round(
    history: History,
    rng: np.random.Generator,
    number: int,
    positions: np.ndarray[Any, np.dtype[np.float64]],
    identity: np.ndarray[Any, np.dtype[np.int64]],
    loss: np.ndarray[Any, np.dtype[np.float64]],
) -> RoundRecord:
    made, users = history.scenario, len(history.samples)
    distance = np.linalg.norm(positions[:, None] - history.stations_m[None], axis=2)
    station, block = np.full(users, -1), np.full(users, -1)
    nearest = distance.argmin(axis=1)
    for b in range(made.network.stations):
        chosen = rng.permutation(np.flatnonzero(nearest == b))[: made.network.blocks]
        station[chosen] = b
        block[chosen] = rng.permutation(made.network.blocks)[: len(chosen)]
    served = station >= 0
    violation = np.zeros(users, dtype=np.int64)
    kinds = {}
    for bit, name in enumerate(VIOLATION_KINDS):
        flags = (rng.random(users) < 0.04) & ~served
        violation |= flags.astype(np.int64) << bit
        kinds[name] = int(flags.sum())
    violators = int((violation > 0).sum())
    private = made.privacy.noise != "off"
    noise_std = np.where(served & private, np.sqrt(12.0) * rng.uniform(0.8, 1.2, users), 0.0)
    history.ledger.charge(
        np.flatnonzero(served), release_rho(history.clip[served], noise_std[served], made.privacy.adjacency)
    )
    loss = loss * rng.uniform(0.95, 1.05, users)
    accuracy = np.clip(1 - loss / 2.6 + rng.normal(0, 0.02, users), 0, 1)
    majority = 0.45 + 0.02 * (np.arange(users) % 5)
    rate = np.where(served, rng.uniform(1e6, 8e6, users), 0.0)
    uplink = np.divide(2.0e4, rate, out=np.zeros(users), where=served)
    rho = history.ledger.rho.copy()
    tasks = range(made.network.tasks)

    def mean(values: np.ndarray[Any, np.dtype[np.float64]], mask: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
        return float(np.average(values[mask], weights=history.samples[mask])) if mask.any() else float("nan")

    everyone = np.ones(users, dtype=bool)
    without_penalty = -float((loss * history.samples).sum() / users)
    downlink, compute = 1e-3 * int(rng.integers(3, 7)), 0.8e-3
    return RoundRecord(
        round=number,
        loss=mean(loss, everyone),
        test_loss=mean(1.05 * loss, everyone),
        accuracy=mean(accuracy, everyone),
        majority=mean(majority, everyone),
        central=float("nan"),
        personal_test_loss=float("nan"),
        personal_accuracy=float("nan"),
        clustering_accuracy=clustering_accuracy(identity, history.groups),
        adjusted_rand_index=adjusted_rand_index(identity, history.groups),
        starting=0,
        groups_estimate=-1,
        groups_confirmed=-1,
        offered_task=-1,
        offered_source=-1,
        offered_users=0,
        offered_reason=0,
        selected=int(served.sum()) + violators,
        served=int(served.sum()),
        violators=violators,
        **kinds,
        broadcasts=5,
        downlink_s=downlink,
        uplink_s=float(uplink.max()),
        compute_s=compute,
        delay_s=downlink + compute + float(uplink.max()),
        transmit_energy_j=float(uplink.sum()),
        compute_energy_j=2e-3 * users / 12,
        station_energy_j=6.3 * downlink,
        noise_infeasible_tasks=0,
        refused_releases=0,
        rejected_uploads=0,
        unexpected_uploads=0,
        lost_uploads=0,
        closed_tasks=0,
        protocol_bytes=0,
        mean_gradient_norm=2.5,
        clipped_fraction=float(0.5 * np.exp(-number / 10)),
        leakage=1e-6,
        rho_mean=float(rho.mean()),
        rho_max=float(rho.max()),
        epsilon_max=epsilon(float(rho.max()), made.privacy.delta),
        objective=mean(loss, everyone) + 0.05,
        reward=without_penalty - 1e3 * violators**2,
        reward_without_penalty=without_penalty,
        task_users=[int((identity == k).sum()) for k in tasks],
        task_served=[int(((identity == k) & served).sum()) for k in tasks],
        task_loss=[mean(loss, identity == k) for k in tasks],
        task_accuracy=[mean(accuracy, identity == k) for k in tasks],
        group_loss=[mean(loss, history.groups == g) for g in range(made.groups)],
        group_accuracy=[mean(accuracy, history.groups == g) for g in range(made.groups)],
        group_majority=[mean(majority, history.groups == g) for g in range(made.groups)],
        group_central=[float("nan")] * made.groups,
        group_personal_accuracy=[float("nan")] * made.groups,
        users=UserRecord(
            group=history.groups.copy(),
            x_m=positions[:, 0].copy(),
            y_m=positions[:, 1].copy(),
            identity=identity,
            selected=(served | (violation > 0)).astype(np.int64),
            station=station,
            block=block,
            violation=violation,
            rejection=np.zeros(users, dtype=np.int64),
            joined=served.astype(np.int64),
            rate_bps=rate,
            noise_std=noise_std,
            rho=rho,
            rho_identity=np.zeros(users),
            loss=loss,
            test_loss=1.05 * loss,
            accuracy=accuracy,
            majority=majority,
            central=np.full(users, np.nan),
            personal_test_loss=np.full(users, np.nan),
            personal_accuracy=np.full(users, np.nan),
            uplink_s=uplink,
            energy_j=uplink + 2e-3 / 12,
        ),
    )


@pytest.fixture(scope="module", autouse=True)
def _coarse_pictures() -> Iterator[None]:
    """Draw fewer pixels: the tests look at what is drawn, not at how sharp it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("covey.report.pictures.DPI", 50)
        yield


@pytest.fixture(scope="session")
def make_history() -> Callable[..., History]:
    """`history_of`, as a fixture."""
    return history_of


@pytest.fixture(scope="session")
def history() -> History:
    """Twelve users, four stations, four tasks, fifteen rounds."""
    return history_of()
