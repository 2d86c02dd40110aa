from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.networks import make_observation

from covey.association.filling import gain_shares
from covey.network import Observation
from covey.scenario import Scenario
from covey.uplink import Admission, TrialAdmission, Uplink
from covey.uplink.ofdma import Ofdma


def filled(observation: Observation, score: np.ndarray, reuse_bonus: float = 0.0) -> Admission:
    plan = observation.uplink.admission(observation)
    plan.fill(score, reuse_bonus)
    return plan


def test_fill_follows_the_score_until_nothing_fits() -> None:
    observation = make_observation(1)
    score = np.zeros((4, 12))
    station, user = np.argwhere(observation.eligible)[-1]
    score[station, user] = 1.0
    plan = filled(observation, score)
    assert plan.station[user] == station
    assert not plan.candidates().any()


def test_reuse_bonus_prefers_broadcasts_in_use() -> None:
    served = dict.fromkeys((0.0, 100.0), 0)
    for seed in range(20):
        observation = make_observation(seed, slots=99)
        for bonus in served:
            plan = filled(observation, gain_shares(observation), bonus)
            served[bonus] += plan.broadcasts
    assert served[100.0] < served[0.0]


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
    plan = filled(observation, rng.random((stations, 16)))
    served = np.flatnonzero(plan.station >= 0)
    for user in rng.permutation(served)[: rng.integers(len(served) + 1)]:
        plan.remove(int(user))
    score = rng.integers(-1, levels, (stations, 16)).astype(float)
    expected = fill_by_loop(plan.copy(), observation, score, reuse_bonus)
    found = plan.copy()
    found.fill(score, reuse_bonus)
    np.testing.assert_array_equal(found.station, expected.station)
    np.testing.assert_array_equal(found.block, expected.block)
    np.testing.assert_array_equal(found.members, expected.members)
    assert not found.candidates().any()


def batch(networks: int, **changes: object) -> Observation:
    """Networks that play round 0 together."""
    made = [make_observation(seed, users=15, available=0.9, **changes) for seed in range(networks)]
    return Observation.stack([replace(observation, round=0) for observation in made])


def test_a_batch_is_filled_network_by_network() -> None:
    observations = batch(40, blocks=3)
    uplink = observations.uplink
    scores = np.random.default_rng(0).integers(0, 6, (40, 4, 15)).astype(float)
    selected = uplink.fill(observations, scores)
    for n in range(40):
        np.testing.assert_array_equal(selected[n], filled(observations[n], scores[n]).selected)
        np.testing.assert_array_equal(selected[n], uplink.fill(observations[n], scores[n]))
    above = uplink.fill(observations, scores, minimum=2.0)
    for n in range(40):
        good = np.where(scores[n] > 2, scores[n], -np.inf)
        np.testing.assert_array_equal(above[n], filled(observations[n], good).selected)
    assert above.any()
    assert not np.any(above & (scores <= 2))


def test_filling_without_networks_or_candidates() -> None:
    observations = batch(3)
    scores = np.ones((3, 4, 15))
    nobody = replace(observations, available=np.zeros((3, 15), dtype=bool))
    assert not nobody.uplink.fill(nobody, scores).any()
    assert not observations.uplink.fill(observations, scores, minimum=1.0).any()
    assert observations.uplink.fill(observations[:0], scores[:0]).shape == (0, 4, 15)


def test_filling_refuses_arrays_that_do_not_fit() -> None:
    observations = batch(3)
    scores = np.ones((3, 4, 15))
    with pytest.raises(ValueError, match="do not fit together"):
        observations.uplink.fill(observations, scores[:2])
    turned = replace(observations, gains=observations.gains.swapaxes(1, 2))
    with pytest.raises(ValueError, match=r"gains \(3, 4, 15\) do not fit together"):
        turned.uplink.fill(turned, scores)
    with pytest.raises(IndexError, match="beyond the last"):
        observations.uplink.fill(replace(observations, identities=observations.identities - 5), scores)


def test_survivors_of_a_batch_are_those_of_every_network() -> None:
    observations = batch(60, blocks=3)
    uplink = observations.uplink
    station = np.random.default_rng(1).integers(-1, 4, (60, 15))
    selected = station[:, None, :] == np.arange(4)[:, None]
    selected[0] = False
    kept = uplink.survivors(observations, selected)
    for n in range(60):
        np.testing.assert_array_equal(kept[n], uplink.survivors(observations[n], selected[n]))
    assert 0 < kept.sum() < selected.sum()
    np.testing.assert_array_equal(uplink.survivors(observations, kept), kept)
    assert uplink.survivors(observations[:0], selected[:0]).shape == (0, 4, 15)


def test_survivors_of_wrong_selections_are_refused() -> None:
    observations = batch(2)
    with pytest.raises(ValueError, match="user 0 is selected by more than one station"):
        observations.uplink.survivors(observations, np.ones((2, 4, 15), bool))
    with pytest.raises(ValueError, match="do not fit together"):
        observations.uplink.survivors(observations, np.zeros((2, 3, 15), bool))


def test_an_admission_can_start_with_users_that_are_served() -> None:
    observation = make_observation(3)
    kept = observation.uplink.survivors(observation, filled(observation, gain_shares(observation)).selected)
    np.testing.assert_array_equal(observation.uplink.admission(observation, kept).selected, kept)


class Slow(Ofdma):
    """OFDMA with nothing but what every uplink has: `grant` and `rates`."""

    survivors = Uplink.survivors
    admission = Uplink.admission  # type: ignore[assignment]
    fill = Uplink.fill
    alone_bps = Uplink.alone_bps


def test_what_every_uplink_has_is_enough() -> None:
    quick, slow = Ofdma(Scenario()), Slow(Scenario())
    for seed in range(6):
        fast = make_observation(seed, users=8, slots=4)
        observation = replace(fast, limits=replace(fast.limits, uplink=slow))
        plan = slow.admission(observation)
        assert isinstance(plan, TrialAdmission)
        # The matching finds blocks for everybody whom the step-by-step admission finds one for, and at times for more.
        assert not np.any(quick.admission(fast).candidates() & ~plan.candidates())
        plan.fill(gain_shares(observation))
        assert not plan.candidates().any()
        assert plan.served_samples > 0
        projected = fast.project(plan.selected)
        assert not projected.violators.any()
        np.testing.assert_array_equal(slow.survivors(observation, plan.selected), plan.selected)
        scores = np.where(observation.eligible, gain_shares(observation), 0.0)
        covered = slow.fill(observation, np.zeros_like(scores), minimum=0.0, first=scores)
        assert covered.sum() == len(set(observation.identities[covered.any(axis=0)].tolist())) > 0
        np.testing.assert_allclose(
            slow.alone_bps(fast.gains, fast.limits), quick.alone_bps(fast.gains, fast.limits), rtol=1e-12
        )


def test_a_trial_admission_admits_and_removes() -> None:
    fast = make_observation(1, users=8)
    observation = replace(fast, limits=replace(fast.limits, uplink=Slow(Scenario())))
    plan = observation.uplink.admission(observation)
    station, user = map(int, np.argwhere(plan.candidates())[0])
    plan.admit(station, user)
    twin = plan.copy()
    twin.remove(user)
    assert np.argwhere(plan.selected).tolist() == [[station, user]]
    assert not twin.selected.any()
    assert plan.value == (observation.samples[user], -1)
    for wrong in (station, -1, 4):
        with pytest.raises(ValueError, match=f"user {user} cannot be admitted by station {wrong}"):
            plan.admit(wrong, user)


def test_air_time_is_that_of_the_slowest() -> None:
    observation = make_observation(2)
    uplink, plan = observation.uplink, observation.project(filled(observation, gain_shares(observation)).selected)
    rates = uplink.rates(observation.gains, plan, observation.limits)
    np.testing.assert_array_equal(rates > 0, plan.served)
    assert np.all(rates[plan.served] >= Scenario().radio.min_rate_bps)
    time = uplink.air_time(rates, plan, 1e6)
    np.testing.assert_array_equal(time.upload_s[plan.served], 1e6 / rates[plan.served])
    assert time.total_s == time.upload_s.max()
    nobody = uplink.unscheduled(observation.gains, np.zeros(0, dtype=int), 1e6, observation.limits)
    assert nobody.total_s == 0.0
    assert not nobody.upload_s.any()


def test_uplinks_of_one_kind_and_radio_are_equal() -> None:
    assert Ofdma(Scenario()) == Ofdma(Scenario())
    assert hash(Ofdma(Scenario())) == hash(Ofdma(Scenario()))
    assert Ofdma(Scenario()) != Slow(Scenario())
