from __future__ import annotations

import numpy as np
import pytest

from covey.association import Admission
from covey.association.filling import fill, gain_shares, selected_samples, settled, survivors

from .conftest import make_observation, projected


def test_gain_shares_sum_to_one_and_survive_silence() -> None:
    observation = make_observation(0)
    np.testing.assert_allclose(gain_shares(observation).sum(axis=0), 1.0)
    observation.gains[3] = 0.0
    assert np.all(gain_shares(observation)[:, 3] == 0.0)


def test_fill_follows_the_score_until_nothing_fits() -> None:
    observation = make_observation(1)
    score = np.zeros((4, 12))
    station, user = np.argwhere(observation.eligible)[-1]
    score[station, user] = 1.0
    plan = fill(Admission(observation), observation, score)
    assert plan.station[user] == station
    assert not plan.candidates().any()


def test_reuse_bonus_prefers_broadcasts_in_use() -> None:
    served = dict.fromkeys((0.0, 100.0), 0)
    for seed in range(20):
        observation = make_observation(seed, slots=99)
        for bonus in served:
            plan = fill(Admission(observation), observation, gain_shares(observation), bonus)
            served[bonus] += plan.broadcasts
    assert served[100.0] < served[0.0]


@pytest.mark.parametrize("seed", range(20))
def test_settled_selections_are_served_completely(seed: int) -> None:
    observation = make_observation(seed, users=20)
    plan = fill(Admission(observation), observation, np.random.default_rng(seed).random((4, 20)))
    kept, matching = survivors(observation, plan.selected)
    assert not np.any(kept & ~plan.selected)
    assert np.all(matching.block[kept.any(axis=0)] >= 0)
    final = settled(observation, plan.selected)
    assert selected_samples(observation, final) >= selected_samples(observation, kept)
    for first_station in range(4):
        result = projected(observation, final, first_station)
        assert not result.violators.any()
        np.testing.assert_array_equal(result.served, final.any(axis=0))
