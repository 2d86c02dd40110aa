from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.networks import make_observation, projected

from covey.allocation import exact_association
from covey.association import greedy, local_search, random
from covey.network import Observation


def run(policy: Callable, observation: Observation, seed: int = 0) -> np.ndarray:
    return policy(observation, np.random.default_rng(seed))


def optimum(observation: Observation) -> float:
    return exact_association(
        observation.gains,
        observation.identities,
        observation.capable,
        observation.samples.astype(float),
        observation.limits.radio,
    ).objective


@pytest.mark.parametrize("seed", range(12))
def test_local_search_never_breaks_a_rule(seed: int) -> None:
    observation = make_observation(seed, stations=3 + seed % 3, users=10 + seed, slots=4 + seed % 5, available=0.9)
    selected = run(local_search, observation, seed)
    for first_station in range(len(observation.capable)):
        plan = projected(observation, selected, first_station)
        assert not plan.violators.any()
        np.testing.assert_array_equal(plan.served, selected.any(axis=0))


def test_quality_rises_from_random_to_greedy_to_local_search_to_the_optimum(served_samples: Callable) -> None:
    shares: dict[str, list[float]] = {"random": [], "greedy": [], "local_search": []}
    for seed in range(12):
        observation = make_observation(seed)
        best = optimum(observation)
        for policy in (random, greedy, local_search):
            served = served_samples(observation, run(policy, observation, seed))
            assert served <= best
            shares[policy.__name__].append(served / best)
    means = {name: np.mean(values) for name, values in shares.items()}
    assert means["random"] < 0.8 < means["greedy"] < means["local_search"]
    assert means["local_search"] > 0.96


def test_local_search_is_not_below_greedy(served_samples: Callable) -> None:
    for seed in range(20, 30):
        observation = make_observation(seed)
        found = served_samples(observation, run(local_search, observation))
        assert found >= served_samples(observation, run(greedy, observation))


def test_ties_go_to_fewer_broadcasts() -> None:
    # Either station serves both users at full strength, but together they need one broadcast instead of two.
    observation = make_observation(0, stations=2, users=2, tasks=1, slots=2)
    both = Observation(
        **{
            **observation.__dict__,
            "gains": np.array([[1.0, 0.999], [0.999, 1.0]]),
            "samples": np.array([100, 100]),
            "available": np.ones(2, dtype=bool),
        }
    )
    plan = projected(both, run(local_search, both))
    assert plan.served.all()
    assert plan.active.sum() == 1
