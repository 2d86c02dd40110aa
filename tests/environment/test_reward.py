from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.environment import Outcome, Penalty, SurrogateRounds, calibration_for, rewards
from covey.environment.reward import penalty_of
from covey.scenario import load_scenario
from covey.scenario.schema import Reward

QUICK = load_scenario("quick")
WEIGHTS = QUICK.reward
PENALTIES: tuple[Penalty, ...] = ("progressive", "fixed")


def played(seed: int, share: float) -> tuple[Outcome, np.ndarray]:
    """A round in which every station selects a share of all users, whoever they are."""
    rounds = SurrogateRounds(QUICK, calibration_for(QUICK), 2)
    view = rounds.reset([seed, seed + 1])
    selected = np.random.default_rng(seed).random((2, 4, 12)) < share
    return rounds.step(selected), view.samples


@given(st.integers(0, 10_000), st.floats(0.0, 1.0), st.sampled_from(PENALTIES))
@settings(max_examples=60)
def test_the_stations_shares_sum_to_the_team_reward(seed: int, share: float, penalty: Penalty) -> None:
    outcome, samples = played(seed, share)
    gained = rewards(outcome, samples, WEIGHTS, penalty)
    np.testing.assert_allclose(gained.stations.sum(axis=1), gained.team, rtol=0, atol=1e-9 * np.abs(gained.team).max())
    np.testing.assert_allclose(gained.station_violations.sum(axis=1), gained.violators, atol=1e-9)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_reward_is_a_sum_over_users(penalty: Penalty) -> None:
    outcome, samples = played(3, 0.3)
    gained = rewards(outcome, samples, WEIGHTS, penalty)
    for network in range(2):
        cost = leakage = before = 0.0
        violators = 0
        for user in range(12):
            before += samples[network, user] * outcome.loss_before[network, user] / 12
            cost += samples[network, user] * outcome.loss[network, user] / 12
            if outcome.station[network, user] >= 0:
                noise = samples[network, user] * outcome.noise_std[network, user]
                leakage += WEIGHTS.leakage_weight / noise**2 / 12
            violators += bool(outcome.violators[network, user])
        size = 1e3 * violators**2 if penalty == "progressive" else 5e3 * (violators > 0)
        assert gained.cost_before[network] == pytest.approx(before)
        assert gained.cost[network] == pytest.approx(cost)
        assert gained.leakage_cost[network] == pytest.approx(leakage)
        assert gained.violators[network] == violators > 0
        assert gained.penalty[network] == size
        assert gained.without_penalty[network] == pytest.approx(-cost - leakage)
        assert gained.team[network] == pytest.approx(-cost - leakage - size)


def test_a_station_pays_for_its_own_users_and_violations() -> None:
    outcome, samples = played(3, 0.3)
    gained = rewards(outcome, samples, WEIGHTS)
    losses = samples * outcome.loss / 12
    priced = WEIGHTS.leakage_weight * outcome.leakage / 12
    for network in range(2):
        left = losses[network, outcome.station[network] < 0].sum() / 4
        for station in range(4):
            own = outcome.station[network] == station
            charged = gained.penalty[network] * outcome.station_violations[network, station] / gained.violators[network]
            expected = -(losses + priced)[network, own].sum() - left - charged
            assert gained.stations[network, station] == pytest.approx(expected)


def test_more_violators_cost_more_and_none_cost_nothing() -> None:
    violators = np.arange(13.0)
    progressive = penalty_of(violators, 1e3, "progressive")
    assert progressive[0] == 0.0
    assert np.all(np.diff(progressive) > 0)
    assert progressive[12] == 144_000.0
    np.testing.assert_array_equal(penalty_of(violators, 1e3, "fixed"), [0.0] + [5e3] * 12)


def test_one_more_violating_user_lowers_the_team_reward() -> None:
    outcome, samples = played(4, 0.0)
    team = []
    for amount in range(13):
        violators = np.zeros((2, 12), dtype=bool)
        violators[:, :amount] = True
        charged = np.zeros((2, 4))
        charged[:, 1] = amount
        changed = Outcome(**{**vars(outcome), "violators": violators, "station_violations": charged})
        gained = rewards(changed, samples, WEIGHTS)
        np.testing.assert_allclose(gained.stations.sum(axis=1), gained.team)
        team.append(gained.team)
    assert np.all(np.diff(team, axis=0) < 0)


def test_a_round_without_penalty_weight_has_no_penalty() -> None:
    outcome, samples = played(5, 0.9)
    gained = rewards(outcome, samples, Reward(penalty=0.0))
    assert np.all(gained.violators > 0)
    np.testing.assert_array_equal(gained.team, gained.without_penalty)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_rewards_equal_array_arithmetic_bit_by_bit(penalty: Penalty) -> None:
    for seed in range(5):
        outcome, samples = played(seed, 0.3)
        gained = rewards(outcome, samples, WEIGHTS, penalty)
        losses, priced = samples * outcome.loss / 12, WEIGHTS.leakage_weight * outcome.leakage / 12
        violators = outcome.violators.sum(axis=1).astype(float)
        size = penalty_of(violators, WEIGHTS.penalty, penalty)
        own = outcome.station[:, None, :] == np.arange(4)[None, :, None]
        nobody = (losses * (outcome.station < 0)).sum(axis=1)
        by_station = outcome.station_violations / np.maximum(violators, 1.0)[:, None]
        shares = -np.einsum("nbu,nu->nb", own, losses + priced) - nobody[:, None] / 4 - size[:, None] * by_station
        np.testing.assert_array_equal(gained.stations, shares)
        np.testing.assert_array_equal(gained.team, -(losses + priced).sum(axis=1) - size)
        np.testing.assert_array_equal(gained.cost_before, (samples * outcome.loss_before).sum(axis=1) / 12)
        np.testing.assert_array_equal(gained.cost, losses.sum(axis=1))
        np.testing.assert_array_equal(gained.leakage_cost, priced.sum(axis=1))


def test_samples_of_other_users_are_refused() -> None:
    outcome, samples = played(0, 0.3)
    with pytest.raises(ValueError, match=r"all must be \(N, U\)"):
        rewards(outcome, samples[:, 1:], WEIGHTS)
