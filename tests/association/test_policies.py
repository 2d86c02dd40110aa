from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.networks import make_observation, projected

from covey.association import greedy, local_search, nearest, random
from covey.network import Observation


def run(policy: Callable, observation: Observation, seed: int = 0) -> np.ndarray:
    return policy(observation, np.random.default_rng(seed))


@pytest.mark.parametrize("policy", [random, greedy])
@settings(max_examples=120)
@given(
    seed=st.integers(0, 2**32 - 1),
    stations=st.integers(1, 6),
    users=st.integers(4, 24),
    blocks=st.integers(1, 6),
    slots=st.integers(0, 10),
    area_m=st.sampled_from([50.0, 500.0, 2000.0]),
    available=st.sampled_from([0.0, 0.7, 1.0]),
)
def test_valid_policies_never_break_a_rule(
    policy: Callable, seed: int, stations: int, users: int, blocks: int, slots: int, area_m: float, available: float
) -> None:
    observation = make_observation(
        seed, stations=stations, users=users, blocks=blocks, slots=slots, area_m=area_m, available=available
    )
    selected = run(policy, observation, seed)
    assert not np.any(selected[:, ~observation.available])
    for first_station in range(stations):
        plan = projected(observation, selected, first_station)
        assert not plan.violators.any()
        np.testing.assert_array_equal(plan.served, selected.any(axis=0))


@pytest.mark.parametrize("policy", [random, nearest, greedy, local_search])
def test_policies_repeat_with_the_same_generator(policy: Callable) -> None:
    observation = make_observation(5)
    np.testing.assert_array_equal(run(policy, observation, 1), run(policy, observation, 1))


def test_random_depends_on_the_generator() -> None:
    observation = make_observation(5)
    assert len({run(random, observation, seed).tobytes() for seed in range(10)}) > 5


def test_random_leaves_no_pair_that_would_fit_alone() -> None:
    observation = make_observation(0, slots=99, area_m=5000.0)
    selected = run(random, observation)
    alone = observation.eligible & (observation.power_w * observation.gains.T >= 1.001 * observation.noise_w)
    full = selected.sum(axis=1) >= observation.blocks
    unserved = ~selected.any(axis=0)
    # Stations this far apart hardly disturb each other: whoever is in reach of a station with a free block is served.
    assert not np.any(alone[~full][:, unserved])


def test_nearest_by_loops() -> None:
    for seed in range(20):
        observation = make_observation(seed, blocks=2, available=0.8)
        expected = np.zeros((4, 12), dtype=bool)
        suitors: dict[int, list[int]] = {b: [] for b in range(4)}
        for i in range(12):
            able = [b for b in range(4) if observation.eligible[b, i]]
            if able:
                suitors[min(able, key=lambda b: observation.distances_m[i, b])].append(i)
        for b, users in suitors.items():
            for i in sorted(users, key=lambda i: observation.distances_m[i, b])[:2]:
                expected[b, i] = True
        np.testing.assert_array_equal(run(nearest, observation), expected)


def test_nearest_breaks_rules_somewhere() -> None:
    broken = [projected(o, run(nearest, o)).violators.any() for o in map(make_observation, range(10))]
    assert any(broken)


@pytest.mark.parametrize("policy", [random, nearest, greedy, local_search])
def test_nobody_available(policy: Callable) -> None:
    observation = make_observation(0, available=0.0)
    assert not run(policy, observation).any()


def test_campus_size_works() -> None:
    observation = make_observation(0, stations=10, users=200, tasks=5, blocks=12, slots=24, area_m=1225.0)
    selected = run(greedy, observation)
    assert selected.sum() > 60
    assert not projected(observation, selected).violators.any()
