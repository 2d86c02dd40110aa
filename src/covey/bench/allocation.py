"""Speed and quality of the allocation methods, compared with a general solver and the exact optimum."""

from __future__ import annotations

import importlib
import math
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.allocation import Allocation, Problem, assign_blocks, check, exact_blocks, leakage, noise_levels
from covey.association import nearest
from covey.bench.timing import timed
from covey.network import NetworkLimits, Observation, RadioLimits
from covey.radio import Channel, distances, place
from covey.scenario import Scenario
from covey.scenario.schema import Network, Radio
from covey.uplink.ofdma import Ofdma

_V_MAX = 12.0
_MIN_DISTANCE_M = 10.0
#: Power, noise and SINR floor of the `paper` preset: 30 dBm, -90 dBm per block, 1 bit/s/Hz.
_LINK = {"power_w": 1.0, "noise_w": 1e-12, "min_sinr": 1.0}


def noise_levels_vs_cvxpy(users: int = 1000, repeats: int = 7, seed: int = 0) -> dict[str, Any]:
    """Time of `noise_levels` against cvxpy with Clarabel on one task, and how far they differ, on two instances.

    `paper_setting`: 200 to 600 samples, v_max 12, n_min 100, where no floor is active. `floors_active`: widely
    spread sizes and n_min at 0.9 of the largest feasible value, for which `noise_levels` iterates. Speed is measured
    at the solver's default tolerance, the difference at the tightest that it reaches. Needs cvxpy.
    """
    rng = np.random.default_rng(seed)
    spread = np.ceil(rng.lognormal(5.5, 0.8, users))
    n_min = 0.9 * float(noise_levels(spread, np.zeros(users, dtype=np.int64), _V_MAX, 0.0).best_floor[0])
    return {
        "users": users,
        "paper_setting": _against_cvxpy(rng.integers(200, 601, users).astype(np.float64), 100.0, repeats),
        "floors_active": _against_cvxpy(spread, n_min, repeats),
    }


def _against_cvxpy(samples: NDArray[np.float64], n_min: float, repeats: int) -> dict[str, Any]:
    cvxpy: Any = importlib.import_module("cvxpy")
    users = len(samples)
    task = np.zeros(users, dtype=np.int64)

    def by_solver(**options: float) -> NDArray[np.float64]:
        # Scaled by the mean share of the cap, so that the solver sees numbers near 1.
        unit = _V_MAX * samples.sum() / users
        share = cvxpy.Variable(users)
        cost = users * (1.0 / samples) / np.sqrt(1.0 / samples).sum() ** 2
        problem = cvxpy.Problem(
            cvxpy.Minimize(cvxpy.sum(cvxpy.multiply(cost, cvxpy.inv_pos(share)))),
            [cvxpy.sum(share) <= users, share >= n_min**2 / samples / unit],
        )
        problem.solve(solver=cvxpy.CLARABEL, **options)
        return np.asarray(np.sqrt(share.value * unit / samples), dtype=np.float64)

    ours = noise_levels(samples, task, _V_MAX, n_min).std
    tight = by_solver(tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    # Interleaved, so that other load on the machine affects both.
    pairs = [
        (timed(by_solver, 1)["min_s"], timed(partial(noise_levels, samples, task, _V_MAX, n_min), 50)["median_s"])
        for _ in range(repeats)
    ]
    ratios = [general / direct for general, direct in pairs]
    return {
        "users_on_the_floor": int(np.sum(samples * ours <= n_min * (1 + 1e-9))),
        "covey_median_s": statistics.median(direct for _, direct in pairs),
        "covey_min_s": min(direct for _, direct in pairs),
        "cvxpy_median_s": statistics.median(general for general, _ in pairs),
        "cvxpy_min_s": min(general for general, _ in pairs),
        "times_faster_median": statistics.median(ratios),
        "times_faster_min": min(ratios),
        "times_faster_max": max(ratios),
        "largest_relative_difference_of_noise": float(np.max(np.abs(tight / ours - 1.0))),
        "relative_difference_of_leakage": abs(leakage(samples, tight).sum() / leakage(samples, ours).sum() - 1.0),
    }


def noise_levels_growth(
    sizes: Sequence[int] = (100, 1_000, 10_000, 100_000), repeats: int = 9, tasks: int = 4, seed: int = 0
) -> dict[str, Any]:
    """Time of `noise_levels` by number of users; `exponent`: scaling exponent since the row before, 1 if linear."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for users in sizes:
        samples, task = np.ceil(rng.lognormal(5.5, 0.8, users)), rng.integers(0, tasks, users)
        n_min = 0.9 * float(noise_levels(samples, task, _V_MAX, 0.0).best_floor.min())
        row: dict[str, Any] = {
            "users": users,
            **timed(partial(noise_levels, samples, task, _V_MAX, n_min), repeats),
        }
        if rows:
            ratio = row["min_s"] / rows[-1]["min_s"]
            row["exponent"] = math.log(ratio) / math.log(users / rows[-1]["users"])
        rows.append(row)
    return {"tasks": tasks, "sizes": rows}


def assign_blocks_vs_exact(instances: int = 200, seed: int = 0) -> dict[str, Any]:
    """Served samples of `assign_blocks` against the optimum, on paper-size networks; every result is checked.

    Half the selections assign each user to its nearest capable station, half to random capable stations.
    """
    gaps: dict[str, list[float]] = {"nearest": [], "random": []}
    seconds: list[float] = []
    violations = 0
    for number in range(instances):
        rng = np.random.default_rng([seed, number])
        observation = _network(rng, Network())
        kind = ("nearest", "random")[number % 2]
        selected = nearest(observation, rng) if kind == "nearest" else _random_selection(observation, rng)
        samples = observation.samples.astype(np.float64)
        radio = observation.limits.radio
        start = time.perf_counter()
        found = assign_blocks(observation.gains, selected, samples, radio, first_station=number % len(selected))
        seconds.append(time.perf_counter() - start)
        best = exact_blocks(observation.gains, selected, samples, radio)
        served = float(samples[found.block >= 0].sum())
        gaps[kind].append(1.0 - served / best.objective if best.objective > 0 else 0.0)
        violations += _violated(observation, found.station, found.block)
    everything = gaps["nearest"] + gaps["random"]
    return {
        "instances": instances,
        "mean_gap": statistics.fmean(everything),
        "max_gap": max(everything),
        "share_optimal": statistics.fmean(gap < 1e-9 for gap in everything),
        "mean_gap_nearest": statistics.fmean(gaps["nearest"]),
        "mean_gap_random": statistics.fmean(gaps["random"]),
        "violations": violations,
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
    }


def assign_blocks_time(
    stations: int = 16, users: int = 1000, blocks: int = 32, repeats: int = 5, seed: int = 0
) -> dict[str, Any]:
    """Time of `assign_blocks` on a large network in which every station selects its nearest users."""
    rng = np.random.default_rng(seed)
    side_m = 250.0 * math.sqrt(stations)
    observation = _network(rng, Network(stations=stations, users=users, blocks=blocks, area_m=(side_m, side_m)))
    selected = nearest(observation, rng)
    samples = observation.samples.astype(np.float64)
    found = assign_blocks(observation.gains, selected, samples, observation.limits.radio)
    return {
        "stations": stations,
        "users": users,
        "blocks": blocks,
        "selected": int(selected.sum()),
        "served": int(np.sum(found.block >= 0)),
        "sweeps": int(found.sweeps),
        "violations": _violated(observation, found.station, found.block),
        **timed(lambda: assign_blocks(observation.gains, selected, samples, observation.limits.radio), repeats),
    }


def _network(rng: np.random.Generator, network: Network) -> Observation:
    """A random network as a policy would see it."""
    seed = int(rng.integers(2**31))
    stations_m, users_m = place(network, seed)
    capable = np.zeros((network.stations, network.tasks), dtype=bool)
    for b, tasks in enumerate(network.station_tasks):
        capable[b, list(tasks)] = True
    return Observation(
        round=0,
        identities=rng.integers(0, network.tasks, network.users),
        distances_m=distances(users_m, stations_m),
        gains=Channel(Radio(), _MIN_DISTANCE_M, seed).gains(users_m, stations_m, 0),
        samples=rng.integers(200, 601, network.users),
        available=np.ones(network.users, dtype=bool),
        kept=np.zeros(network.users, dtype=bool),
        limits=NetworkLimits(
            radio=RadioLimits(network.blocks, network.stations * network.tasks, **_LINK),
            capable=capable,
            users=network.users,
            diagonal_m=math.hypot(*network.area_m),
            rounds=1,
            uplink=Ofdma(Scenario()),
        ),
    )


def _random_selection(observation: Observation, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Every user at a random capable station, at most R per station."""
    selected = np.zeros(observation.eligible.shape, dtype=bool)
    for b in rng.permutation(len(selected)):
        able = np.flatnonzero(observation.eligible[b] & ~selected.any(axis=0))
        selected[b, rng.permutation(able)[: observation.blocks]] = True
    return selected


def _violated(observation: Observation, station: NDArray[np.int64], block: NDArray[np.int64]) -> int:
    """Number of constraints of (11) that the served users' allocation breaks, by the independent check."""
    station = np.where(block >= 0, station, -1)
    samples = observation.samples.astype(np.float64)
    noise = noise_levels(samples, np.where(block >= 0, observation.identities, -1), _V_MAX, 100.0)
    stations = len(observation.capable)
    report = check(
        Allocation.from_indices(station, block, noise.std, stations=stations, blocks=observation.blocks),
        Problem(
            gains=observation.gains,
            identities=observation.identities,
            capable=observation.capable,
            samples=samples,
            power_w=observation.power_w,
            noise_w=observation.noise_w,
            bandwidth_hz=1e6,
            min_rate_bps=1e6,
            v_max=_V_MAX,
            n_min=100.0,
            model_bits=1.0,
            downlink_rate_bps=1.0,
            downlink_limit_s=float(observation.downlink_slots),
        ),
    )
    return len(report.violations)
