"""What single users are worth, and which tasks are whose, against plain computation."""

from __future__ import annotations

import numpy as np
import pytest

from covey.agents.admission_guard import admit
from covey.environment import SurrogateRounds, calibration_for, rewards
from covey.network import Observation
from covey.scenario import Scenario, load_scenario


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario("quick", ["training.rounds=6"])


def plan(rounds: SurrogateRounds, view: Observation) -> np.ndarray:
    """A valid plan of several users in every network."""
    utilities = np.where(view.eligible, np.random.default_rng(0).uniform(0.1, 1.0, (3, 4, 12)), -np.inf)
    return admit(utilities, utilities, view)


def value(scenario: Scenario, seeds: list[int], before: int, change: tuple[int, int] | None) -> np.ndarray:
    """(N,) reward without penalty of one round, and costs before the next times the rounds left, by playing it."""
    rounds = SurrogateRounds(scenario, calibration_for(scenario), len(seeds))
    view = rounds.reset(seeds)
    for _ in range(before):
        rounds.step(plan(rounds, view))
        view = rounds.observation
    selected = plan(rounds, view)
    if change is not None:
        network, user = change
        selected[network, :, user] = False
    gained = rewards(rounds.step(selected), view.samples, scenario.reward)
    left = scenario.training.rounds - view.round - 1
    if left == 0:
        return gained.without_penalty
    nobody = np.zeros(selected.shape, dtype=bool)
    following = rewards(rounds.step(nobody), view.samples, scenario.reward).cost_before
    return gained.without_penalty - left * following


@pytest.mark.parametrize("before", [0, 2, 5])
def test_the_worth_of_a_served_user_is_what_playing_without_it_costs(scenario: Scenario, before: int) -> None:
    seeds = [1, 2, 3]
    rounds = SurrogateRounds(scenario, calibration_for(scenario), 3)
    view = rounds.reset(seeds)
    for _ in range(before):
        rounds.step(plan(rounds, view))
        view = rounds.observation
    outcome = rounds.step(plan(rounds, view))
    worth, _ = rounds.marginal_gains(scenario.reward)
    whole = value(scenario, seeds, before, None)
    checked = 0
    for network in range(3):
        for user in np.flatnonzero(outcome.station[network] >= 0)[:3]:
            without = value(scenario, seeds, before, (network, int(user)))
            assert worth[network, user] == pytest.approx(whole[network] - without[network], rel=1e-9, abs=1e-9)
            checked += 1
    assert checked >= 6


def test_who_is_alone_in_its_task_is_counted(scenario: Scenario) -> None:
    rounds = SurrogateRounds(scenario, calibration_for(scenario), 3)
    view = rounds.reset([4, 5, 6])
    outcome = rounds.step(plan(rounds, view))
    _, sole = rounds.marginal_gains(scenario.reward)
    for network in range(3):
        served = outcome.station[network] >= 0
        for user in range(12):
            same = served & (view.identities[network] == view.identities[network, user])
            same[user] = False
            assert sole[network, user] == (not same.any())


def test_worth_is_asked_after_a_round_only(scenario: Scenario) -> None:
    rounds = SurrogateRounds(scenario, calibration_for(scenario), 1)
    rounds.reset([0])
    with pytest.raises(ValueError, match="call step first"):
        rounds.marginal_gains(scenario.reward)


def test_every_task_belongs_to_one_station_that_can_run_it_and_goes_round(scenario: Scenario) -> None:
    rounds = SurrogateRounds(scenario, calibration_for(scenario), 3)
    view = rounds.reset([7, 8, 9])
    owners: dict[int, set[int]] = {}
    for _ in range(4):
        owned, eligible = view.owned, view.eligible
        assert not np.any(owned & ~eligible)
        assert np.array_equal(owned.sum(axis=1), view.available.astype(int))
        for network, station, user in np.argwhere(owned):
            owners.setdefault(int(view.identities[network, user]), set()).add(int(station))
        rounds.step(np.zeros(owned.shape, dtype=bool))
        view = rounds.observation
    for task, stations in owners.items():
        assert stations <= set(np.flatnonzero(rounds.limits.capable[:, task]))
        assert len(stations) > 1
