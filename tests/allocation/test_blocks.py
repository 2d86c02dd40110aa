from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.allocation import assign_blocks, exact_blocks, kernels, match_blocks
from covey.network import RadioLimits

from .conftest import NOISE_W, POWER_W, make_instance


def served_by_brute_force(
    gains: np.ndarray, station: np.ndarray, weights: np.ndarray, blocks: int, floor: float
) -> float:
    """The largest weight over all assignments of blocks to the selected users."""
    users = np.flatnonzero(station >= 0)
    best = 0.0
    for choice in product(range(-1, blocks), repeat=len(users)):
        block = np.full(len(gains), -1)
        block[users] = choice
        granted = users[block[users] >= 0]
        pairs = {(station[i], block[i]) for i in granted}
        if len(pairs) < len(granted):
            continue
        ok = True
        for i in granted:
            loud = [p for p in granted if block[p] == block[i] and station[p] != station[i]]
            interference = NOISE_W + POWER_W * gains[loud, station[i]].sum()
            ok &= POWER_W * gains[i, station[i]] >= floor * interference
        if ok:
            best = max(best, float(weights[granted].sum()))
    return best


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32 - 1), first=st.integers(0, 3), blocks=st.integers(1, 5))
def test_every_granted_link_meets_the_floor(seed: int, first: int, blocks: int) -> None:
    problem = make_instance(seed, users=16, blocks=blocks)
    selected = problem.selection(np.random.default_rng(seed))
    result = assign_blocks(problem.gains, selected, problem.samples, problem.radio, first_station=first)
    granted = np.flatnonzero(result.block >= 0)
    assert np.all(selected.any(axis=0)[granted])
    assert len({(result.station[i], result.block[i]) for i in granted}) == len(granted)
    assert np.all(result.block < blocks)
    for i in granted:
        loud = [p for p in granted if result.block[p] == result.block[i] and result.station[p] != result.station[i]]
        interference = NOISE_W + POWER_W * problem.gains[loud, result.station[i]].sum()
        assert POWER_W * problem.gains[i, result.station[i]] >= interference


def test_close_to_brute_force_on_tiny_instances() -> None:
    shares = []
    for seed in range(60):
        problem = make_instance(seed, stations=3, users=6, blocks=2, area_m=600.0)
        selected = problem.selection(np.random.default_rng(seed))
        weights = problem.samples.astype(float)
        result = assign_blocks(problem.gains, selected, weights, problem.radio, first_station=seed % 3)
        best = served_by_brute_force(problem.gains, result.station, weights, 2, 1.0)
        served = weights[result.block >= 0].sum()
        assert served <= best
        shares.append(1.0 if best == 0 else served / best)
    assert np.mean(shares) > 0.97
    assert np.mean(np.array(shares) > 1 - 1e-9) > 0.8


def test_without_interference_everybody_up_to_the_blocks_is_served() -> None:
    gains = np.full((6, 2), 1e-20)
    gains[:3, 0] = gains[3:, 1] = 1.0
    selected = np.zeros((2, 6), dtype=bool)
    selected[0, :3] = selected[1, 3:] = True
    weights = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
    everybody = assign_blocks(gains, selected, weights, RadioLimits(3, 9, 1.0, 1e-12, 1.0))
    assert np.all(everybody.block >= 0)
    heaviest = assign_blocks(gains, selected, weights, RadioLimits(2, 9, 1.0, 1e-12, 1.0))
    assert heaviest.block.tolist()[::3] == [-1, -1]
    assert np.all(heaviest.block[[1, 2, 4, 5]] >= 0)


def test_a_light_link_makes_way_for_a_heavier_one() -> None:
    # Two stations, one block, users too close to the middle to share it; the light one comes first.
    gains = np.array([[1.0, 0.9], [0.9, 1.0]])
    selected = np.array([[True, False], [False, True]])
    for first in (0, 1):
        result = assign_blocks(
            gains, selected, np.array([1.0, 5.0]), RadioLimits(1, 9, 1.0, 1e-3, 2.0), first_station=first
        )
        assert result.block.tolist() == [-1, 0]


def test_a_link_exactly_at_the_floor_is_not_trusted_but_one_just_above_is() -> None:
    selected = np.array([[True]])
    for sinr, block in ((1.0, -1), (1.0 + 1e-8, 0)):
        gains = np.array([[sinr * 1e-12]])
        result = assign_blocks(gains, selected, np.ones(1), RadioLimits(1, 9, 1.0, 1e-12, 1.0))
        assert result.block.tolist() == [block]


def test_serving_everybody_does_not_depend_on_the_first_station() -> None:
    everybody = 0
    for seed in range(40):
        problem = make_instance(seed)
        weights = problem.samples.astype(float)
        selected = problem.selection(np.random.default_rng(seed))
        # Only users that some assignment serves together, so that serving everybody is possible and hard.
        selected &= exact_blocks(problem.gains, selected, weights, problem.radio).station >= 0
        wanted = selected.any(axis=0)
        results = [assign_blocks(problem.gains, selected, weights, problem.radio, first_station=b) for b in range(4)]
        outcomes = {bool(np.all(result.block[wanted] >= 0)) for result in results}
        assert len(outcomes) == 1
        everybody += outcomes == {True}
    assert everybody > 30


def test_close_to_the_optimum_at_paper_size() -> None:
    gaps = []
    for seed in range(40):
        problem = make_instance(seed)
        weights = problem.samples.astype(float)
        selected = problem.selection(np.random.default_rng(seed))
        best = exact_blocks(problem.gains, selected, weights, problem.radio).objective
        found = assign_blocks(problem.gains, selected, weights, problem.radio, first_station=seed % 4)
        gaps.append(1 - weights[found.block >= 0].sum() / best)
    assert np.mean(gaps) < 0.006


def test_a_stations_own_link_does_not_stand_in_its_way() -> None:
    # Station 0 serves user 0, which user 2 of station 1 bears, but not together with user 1: replacing is allowed.
    received_w = np.array([[1.0, 0.4], [1.0, 0.4], [0.01, 1.0]])
    selected = np.array([[True, True, False], [False, False, True]])
    station = np.where(selected.any(axis=0), selected.argmax(axis=0), -1)
    links = kernels.links_of(station, received_w, np.array([1.0, 2.0, 3.0]), 0.1, 2.0 * 0.9)
    user = np.array([[0], [2]])
    kernels.improve(np.array([0, 1]), 5, False, user, links, kernels.workspace_of(links, 1))
    assert user.tolist() == [[1], [2]]


def test_users_keep_their_block_when_others_join() -> None:
    links = kernels.links_of(np.zeros(2, dtype=int), np.ones((2, 1)), np.ones(2), 0.1, 1.0)
    user = np.array([[-1, 0]])
    kernels.improve(np.array([0]), 5, False, user, links, kernels.workspace_of(links, 2))
    assert user.tolist() == [[1, 0]]


def test_deterministic_and_leaves_its_input_alone(instance: Callable) -> None:
    problem = instance(3)
    selected = problem.selection(np.random.default_rng(3))
    gains, chosen, samples = problem.gains.copy(), selected.copy(), problem.samples.copy()
    once = assign_blocks(problem.gains, selected, problem.samples, problem.radio)
    again = assign_blocks(problem.gains, selected, problem.samples, problem.radio)
    np.testing.assert_array_equal(once.block, again.block)
    np.testing.assert_array_equal(problem.gains, gains)
    np.testing.assert_array_equal(selected, chosen)
    np.testing.assert_array_equal(problem.samples, samples)


def test_nobody_selected_and_nobody_in_reach(instance: Callable) -> None:
    problem = instance(0)
    nobody = np.zeros((4, 12), dtype=bool)
    assert np.all(assign_blocks(problem.gains, nobody, problem.samples, problem.radio).block == -1)
    selected = problem.selection(np.random.default_rng(0))
    assert np.all(assign_blocks(problem.gains * 1e-9, selected, problem.samples, problem.radio).block == -1)


def test_wrong_input_is_refused(instance: Callable) -> None:
    problem = instance(0)
    selected = problem.selection(np.random.default_rng(0))
    twice = selected.copy()
    twice[:, 0] = True
    with pytest.raises(ValueError, match="user 0 is selected by more than one station"):
        assign_blocks(problem.gains, twice, problem.samples, problem.radio)
    with pytest.raises(ValueError, match="do not fit together"):
        assign_blocks(problem.gains.T, selected, problem.samples, problem.radio)
    with pytest.raises(ValueError, match="positive and finite"):
        assign_blocks(problem.gains, selected, problem.samples * 0, problem.radio)
    with pytest.raises(ValueError, match="gains"):
        assign_blocks(problem.gains * np.nan, selected, problem.samples, problem.radio)


def test_a_batch_gets_the_blocks_of_its_networks() -> None:
    problems = [make_instance(seed, users=16, blocks=3) for seed in range(30)]
    selected = [problem.selection(np.random.default_rng(seed)) for seed, problem in enumerate(problems)]
    first_station = np.arange(30) % 7 - 2
    single = [
        assign_blocks(problem.gains, chosen, problem.samples, problem.radio, first_station=first)
        for problem, chosen, first in zip(problems, selected, first_station, strict=True)
    ]
    gains, samples = (np.stack([getattr(problem, name) for problem in problems]) for name in ("gains", "samples"))
    together = assign_blocks(gains, np.stack(selected), samples, problems[0].radio, first_station=first_station)
    np.testing.assert_array_equal(together.station, [result.station for result in single])
    np.testing.assert_array_equal(together.block, [result.block for result in single])
    np.testing.assert_array_equal(together.sweeps, [result.sweeps for result in single])
    known = match_blocks(gains, together.station, samples, problems[0].radio, first_station=first_station)
    np.testing.assert_array_equal(known.block, together.block)


def test_an_empty_batch() -> None:
    radio = make_instance(0).radio
    assert match_blocks(np.empty((0, 5, 2)), np.empty((0, 5), int), np.empty((0, 5)), radio).block.shape == (0, 5)


def test_wrong_batches_are_refused(instance: Callable) -> None:
    problem = instance(0)
    station = np.zeros((1, 12), dtype=int)
    gains, weights = problem.gains[None], problem.samples[None]
    with pytest.raises(ValueError, match="do not fit together"):
        match_blocks(gains.swapaxes(1, 2), station, weights, problem.radio)
    with pytest.raises(ValueError, match="do not fit together"):
        match_blocks(gains, station, problem.samples, problem.radio)
    with pytest.raises(ValueError, match="station 4 is beyond the last of 4"):
        match_blocks(gains, station + 4, weights, problem.radio)
    with pytest.raises(ValueError, match="positive and finite"):
        match_blocks(gains, station, weights * 0, problem.radio)
