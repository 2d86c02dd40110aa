from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from covey.allocation import TooLargeError, assign_blocks, exact_association, exact_blocks

from .conftest import MIN_SINR, NOISE_W, POWER_W, Instance, make_instance


def feasible(problem: Instance, station: np.ndarray, block: np.ndarray) -> bool:
    served = np.flatnonzero(station >= 0)
    if len({(station[i], block[i]) for i in served}) < len(served):
        return False
    for i in served:
        loud = [p for p in served if block[p] == block[i] and station[p] != station[i]]
        interference = NOISE_W + POWER_W * problem.gains[loud, station[i]].sum()
        if POWER_W * problem.gains[i, station[i]] < MIN_SINR * interference:
            return False
    return True


def best_by_enumeration(problem: Instance, candidates: np.ndarray, slots: int | None) -> tuple[float, int]:
    """Largest weight, and the fewest broadcasts that reach it, over every (station, block) of every user."""
    users, stations = problem.gains.shape
    choices = [
        [(-1, -1)] + [(b, n) for b in range(stations) if candidates[b, i] for n in range(problem.blocks)]
        for i in range(users)
    ]
    best = (0.0, 0)
    for choice in product(*choices):
        station = np.array([c[0] for c in choice])
        weight = float(problem.samples[station >= 0].sum())
        broadcasts = len({(b, problem.identities[i]) for i, b in enumerate(station) if b >= 0})
        if (slots is not None and broadcasts > slots) or (weight, -broadcasts) <= best:
            continue
        if feasible(problem, station, np.array([c[1] for c in choice])):
            best = (weight, -broadcasts)
    return best[0], -best[1]


def broadcasts_of(problem: Instance, station: np.ndarray) -> int:
    return len({(b, problem.identities[i]) for i, b in enumerate(station) if b >= 0})


@pytest.mark.parametrize("seed", range(12))
def test_association_equals_enumeration(seed: int) -> None:
    problem = make_instance(seed, stations=2, users=5, tasks=2, blocks=2, area_m=900.0)
    problem.capable[seed % 2, seed % 2] = False
    slots = 1 + seed % 3
    solution = exact_association(
        problem.gains, problem.identities, problem.capable, problem.samples.astype(float),
        problem.limited(slots),
    )  # fmt: skip
    weight, broadcasts = best_by_enumeration(problem, problem.capable[:, problem.identities], slots)
    assert solution.status == "optimal"
    assert solution.gap == 0.0
    assert solution.objective == pytest.approx(weight)
    assert broadcasts_of(problem, solution.station) == broadcasts
    assert feasible(problem, solution.station, solution.block)
    assert np.array_equal(solution.station >= 0, solution.block >= 0)


@pytest.mark.parametrize("seed", range(12))
def test_blocks_equal_enumeration(seed: int) -> None:
    problem = make_instance(seed, stations=3, users=7, blocks=2, area_m=700.0)
    selected = problem.selection(np.random.default_rng(seed))
    solution = exact_blocks(problem.gains, selected, problem.samples.astype(float), problem.radio)
    weight, _ = best_by_enumeration(problem, selected, None)
    assert solution.objective == pytest.approx(weight)
    assert feasible(problem, solution.station, solution.block)
    assert np.all(selected[solution.station[solution.station >= 0], np.flatnonzero(solution.station >= 0)])


def test_never_below_the_heuristic() -> None:
    for seed in range(30):
        problem = make_instance(seed)
        selected = problem.selection(np.random.default_rng(seed))
        weights = problem.samples.astype(float)
        found = weights[assign_blocks(problem.gains, selected, weights, problem.radio).block >= 0].sum()
        assert exact_blocks(problem.gains, selected, weights, problem.radio).objective >= found - 1e-9


def test_unavailable_users_are_left_out(instance: Callable) -> None:
    problem = instance(1)
    available = np.arange(12) % 2 == 0
    solution = exact_association(
        problem.gains, problem.identities, problem.capable, problem.samples.astype(float),
        problem.limited(6), available=available,
    )  # fmt: skip
    assert solution.objective > 0
    assert np.all(solution.station[~available] == -1)


def test_nothing_to_do(instance: Callable) -> None:
    problem = instance(1)
    arguments = (problem.gains, problem.identities, problem.capable, problem.samples.astype(float))
    nobody = exact_association(*arguments, problem.limited(6), available=np.zeros(12, dtype=bool))
    assert (nobody.objective, nobody.status) == (0.0, "optimal")
    no_slots = exact_association(*arguments, problem.limited(0))
    assert (no_slots.objective, no_slots.status) == (0.0, "optimal")


def test_a_time_limit_is_reported_with_what_may_be_missing(instance: Callable) -> None:
    problem = instance(2, users=20)
    arguments = (problem.gains, problem.identities, problem.capable, problem.samples.astype(float))
    solution = exact_association(*arguments, problem.limited(6), time_limit_s=1e-6)
    assert solution.status == "limit"
    assert solution.objective <= solution.bound
    assert 0 <= solution.gap <= 1
    assert feasible(problem, solution.station, solution.block)


def test_too_large_is_refused_with_advice(instance: Callable) -> None:
    problem = instance(0, stations=6, users=30, area_m=3000.0)
    arguments = (problem.gains, problem.identities, problem.capable, problem.samples.astype(float))
    with pytest.raises(TooLargeError, match="6 stations and 30 users"):
        exact_association(*arguments, problem.limited(9), max_groups=500)


def test_one_station_per_user_is_required(instance: Callable) -> None:
    problem = instance(0)
    with pytest.raises(ValueError, match="more than one station"):
        exact_blocks(problem.gains, np.ones((4, 12), dtype=bool), problem.samples.astype(float), problem.radio)
