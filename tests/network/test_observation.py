from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.networks import make_observation

from covey.network import Observation, Plan


def batch(networks: int = 5) -> Observation:
    return Observation.stack([replace(make_observation(seed, available=0.8), round=6) for seed in range(networks)])


def test_eligible_users_are_available_and_the_station_runs_their_task() -> None:
    observation = make_observation(0, available=0.5)
    for b in range(4):
        for i in range(12):
            expected = observation.available[i] and observation.capable[b, observation.identities[i]]
            assert observation.eligible[b, i] == expected


def test_a_batch_is_its_networks_side_by_side() -> None:
    together = batch()
    assert together.leading == (5,)
    for n in range(5):
        alone = together[n]
        assert alone.leading == ()
        np.testing.assert_array_equal(alone.gains, make_observation(n).gains)
        np.testing.assert_array_equal(together.eligible[n], alone.eligible)
        np.testing.assert_array_equal(together.owned[n], alone.owned)
        selected = np.random.default_rng(n).random((5, 4, 12)) < 0.3
        np.testing.assert_array_equal(together.project(selected).block[n], alone.project(selected[n]).block)
    assert together[1:3].leading == (2,)
    with pytest.raises(IndexError, match="one network"):
        together[0][0]


def test_any_leading_axes_can_become_one() -> None:
    together = batch(6)
    shaped = Observation.stack([together[:3], together[3:]])
    assert shaped.leading == (2, 3)
    np.testing.assert_array_equal(shaped.as_batch().gains, together.gains)
    np.testing.assert_array_equal(shaped.eligible.reshape(6, 4, 12), together.eligible)
    np.testing.assert_array_equal(together[2].as_batch().identities, together.identities[2:3])
    assert together.as_batch() is together


def test_every_task_belongs_to_one_station_in_turn() -> None:
    observation = make_observation(0, users=40)
    owners = []
    for number in range(4):
        owned = replace(observation, round=number).owned
        assert np.all(owned.sum(axis=0) == 1)
        owners.append(owned.argmax(axis=0).tobytes())
    assert len(set(owners)) > 1


def test_rounds_cannot_be_mixed() -> None:
    with pytest.raises(ValueError, match="different rounds"):
        Observation.stack([make_observation(0), make_observation(1)])


def test_plans_can_be_stacked() -> None:
    together = batch()
    selected = np.random.default_rng(0).random((5, 4, 12)) < 0.3
    expected, plans = together.project(selected), Plan.stack([together[n].project(selected[n]) for n in range(5)])
    for name in ("station", "block", "active", "violators", "station_violations", "served"):
        np.testing.assert_array_equal(getattr(plans, name), getattr(expected, name))
    for kind, users in expected.kinds.items():
        np.testing.assert_array_equal(plans.kinds[kind], users)
