from __future__ import annotations

import numpy as np
import pytest
from tests.networks import make_observation, projected

from covey.association.filling import gain_shares, selected_samples, settled


def test_gain_shares_sum_to_one_and_survive_silence() -> None:
    observation = make_observation(0)
    np.testing.assert_allclose(gain_shares(observation).sum(axis=0), 1.0)
    observation.gains[3] = 0.0
    assert np.all(gain_shares(observation)[:, 3] == 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_settled_selections_are_served_completely(seed: int) -> None:
    observation = make_observation(seed, users=20)
    plan = observation.uplink.admission(observation)
    plan.fill(np.random.default_rng(seed).random((4, 20)))
    kept = observation.uplink.survivors(observation, plan.selected)
    assert not np.any(kept & ~plan.selected)
    final = settled(observation, plan.selected)
    assert selected_samples(observation, final) >= selected_samples(observation, kept)
    for first_station in range(4):
        result = projected(observation, final, first_station)
        assert not result.violators.any()
        np.testing.assert_array_equal(result.served, final.any(axis=0))
