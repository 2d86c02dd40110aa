from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.networks import make_observation, projected

from covey.association import ExactPolicy, local_search
from covey.errors import PolicyError

RNG = np.random.default_rng(0)


def test_never_breaks_a_rule_and_records_the_optimum(served_samples: Callable) -> None:
    policy = ExactPolicy()
    for seed in range(12):
        observation = make_observation(seed)
        selected = policy(observation, RNG)
        record = policy.record[-1]
        assert record.round == observation.round
        assert record.status == "optimal"
        assert record.objective == record.bound
        for first_station in range(4):
            assert not projected(observation, selected, first_station).violators.any()
        assert served_samples(observation, selected) == record.selected <= record.objective
        assert served_samples(observation, local_search(observation, np.random.default_rng(seed))) <= record.objective
    assert len(policy.record) == 12
    assert np.mean([r.selected / r.objective for r in policy.record]) > 0.98


def test_unavailable_users_sit_out() -> None:
    observation = make_observation(3, available=0.5)
    assert not ExactPolicy()(observation, RNG)[:, ~observation.available].any()


def test_a_limit_is_recorded() -> None:
    policy = ExactPolicy(time_limit_s=1e-6)
    observation = make_observation(0, users=20)
    selected = policy(observation, RNG)
    assert not projected(observation, selected).violators.any()
    assert policy.record[0].status == "limit"
    assert policy.record[0].bound >= policy.record[0].objective


def test_too_large_is_a_policy_error_with_advice() -> None:
    observation = make_observation(0, stations=10, users=200, tasks=5, blocks=12, slots=24, area_m=1225.0)
    with pytest.raises(PolicyError, match=r"10 stations and 200 users.*local_search"):
        ExactPolicy()(observation, RNG)
