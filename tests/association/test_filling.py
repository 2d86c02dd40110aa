from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.association import Admission, Observation
from covey.association.filling import (
    fill,
    fill_many,
    gain_shares,
    selected_samples,
    settle_many,
    settled,
    survivors,
)

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


def fill_by_loop(plan: Admission, observation: Observation, score: np.ndarray, reuse_bonus: float) -> Admission:
    """Ask for all candidates after every admission and take the best."""
    while True:
        candidates = plan.candidates()
        if not candidates.any():
            return plan
        in_use = plan.members[:, observation.identities] > 0
        now = np.where(candidates, score * (1.0 + reuse_bonus * in_use), -np.inf)
        plan.admit(*map(int, np.unravel_index(now.argmax(), now.shape)))


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    stations=st.integers(1, 5),
    blocks=st.integers(1, 5),
    slots=st.integers(0, 10),
    levels=st.sampled_from([1, 3, 1000]),
    reuse_bonus=st.sampled_from([0.0, 0.25, 100.0, -0.5]),
)
def test_fill_does_what_a_loop_over_candidates_does(
    seed: int, stations: int, blocks: int, slots: int, levels: int, reuse_bonus: float
) -> None:
    observation = make_observation(seed, stations=stations, users=16, blocks=blocks, slots=slots, available=0.9)
    rng = np.random.default_rng(seed)
    plan = Admission(observation)
    fill(plan, observation, rng.random((stations, 16)))
    served = np.flatnonzero(plan.station >= 0)
    for user in rng.permutation(served)[: rng.integers(len(served) + 1)]:
        plan.remove(int(user))
    score = rng.integers(-1, levels, (stations, 16)).astype(float)
    expected = fill_by_loop(plan.copy(), observation, score, reuse_bonus)
    found = fill(plan.copy(), observation, score, reuse_bonus)
    np.testing.assert_array_equal(found.station, expected.station)
    np.testing.assert_array_equal(found.block, expected.block)
    np.testing.assert_array_equal(found.members, expected.members)
    assert not found.candidates().any()


def many(networks: int, **changes: object) -> tuple[list[Observation], dict[str, np.ndarray], dict[str, float]]:
    """Networks, their arrays with a first axis, and the radio that they share."""
    observations = [make_observation(seed, users=15, available=0.9, **changes) for seed in range(networks)]
    arrays = {
        name: np.array([getattr(observation, name) for observation in observations])
        for name in ("identities", "eligible", "gains", "samples")
    }
    one = make_observation(0, **changes)
    return observations, arrays, {name: getattr(one, name) for name in ("blocks", "power_w", "noise_w", "min_sinr")}


def test_fill_many_fills_every_network() -> None:
    observations, arrays, radio = many(40, blocks=3)
    scores = np.random.default_rng(0).integers(0, 6, (40, 4, 15)).astype(float)
    radio["downlink_slots"] = 6
    selected = fill_many(scores, arrays["identities"], arrays["eligible"], arrays["gains"], **radio)
    for n, observation in enumerate(observations):
        np.testing.assert_array_equal(selected[n], fill(Admission(observation), observation, scores[n]).selected)
    above = fill_many(scores, arrays["identities"], arrays["eligible"], arrays["gains"], **radio, minimum=2.0)
    for n, observation in enumerate(observations):
        plan, good = Admission(observation), np.where(scores[n] > 2, scores[n], -np.inf)
        np.testing.assert_array_equal(above[n], fill(plan, observation, good).selected)
    assert above.any()
    assert not np.any(above & (scores <= 2))


def test_fill_many_without_networks_or_candidates() -> None:
    _, arrays, radio = many(3)
    radio["downlink_slots"] = 6
    scores = np.ones((3, 4, 15))
    nobody = fill_many(scores, arrays["identities"], np.zeros((3, 4, 15), bool), arrays["gains"], **radio)
    assert not nobody.any()
    assert not fill_many(scores, arrays["identities"], arrays["eligible"], arrays["gains"], **radio, minimum=1.0).any()
    none = fill_many(scores[:0], arrays["identities"][:0], arrays["eligible"][:0], arrays["gains"][:0], **radio)
    assert none.shape == (0, 4, 15)


def test_fill_many_refuses_arrays_that_do_not_fit() -> None:
    _, arrays, radio = many(3)
    radio["downlink_slots"] = 6
    scores = np.ones((3, 4, 15))
    with pytest.raises(ValueError, match="do not fit together"):
        fill_many(scores[:2], arrays["identities"], arrays["eligible"], arrays["gains"], **radio)
    with pytest.raises(ValueError, match=r"gains \(3, 4, 15\) must be"):
        fill_many(scores, arrays["identities"], arrays["eligible"], arrays["gains"].swapaxes(1, 2), **radio)
    with pytest.raises(ValueError, match="0 or more"):
        fill_many(scores, arrays["identities"] - 5, arrays["eligible"], arrays["gains"], **radio)


def test_settle_many_leaves_the_survivors_of_every_network() -> None:
    observations, arrays, radio = many(60, blocks=3)
    station = np.random.default_rng(1).integers(-1, 4, (60, 15))
    selected = station[:, None, :] == np.arange(4)[:, None]
    selected[0] = False
    kept = settle_many(selected, arrays["gains"], arrays["samples"], **radio)
    for n, observation in enumerate(observations):
        np.testing.assert_array_equal(kept[n], survivors(observation, selected[n])[0])
    assert 0 < kept.sum() < selected.sum()
    np.testing.assert_array_equal(settle_many(kept, arrays["gains"], arrays["samples"], **radio), kept)
    assert settle_many(selected[:0], arrays["gains"][:0], arrays["samples"][:0], **radio).shape == (0, 4, 15)


def test_settle_many_refuses_wrong_selections() -> None:
    _, arrays, radio = many(2)
    with pytest.raises(ValueError, match="user 0 is selected by more than one station"):
        settle_many(np.ones((2, 4, 15), bool), arrays["gains"], arrays["samples"], **radio)
    with pytest.raises(ValueError, match=r"selected \(2, 3, 15\)"):
        settle_many(np.zeros((2, 3, 15), bool), arrays["gains"], arrays["samples"], **radio)
