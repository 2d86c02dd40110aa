from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.agents.admission_guard import admit, exchanged_bytes, first_of_tasks
from covey.environment import SurrogateRounds, calibration_for
from covey.network import Observation
from covey.scenario import load_scenario


@pytest.fixture(scope="module")
def rounds_and_view() -> tuple[SurrogateRounds, Observation]:
    scenario = load_scenario("quick")
    rounds = SurrogateRounds(scenario, calibration_for(scenario), 8)
    return rounds, rounds.reset(range(8))


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 3.0))
@settings(max_examples=150)
def test_whatever_the_utilities_nobody_violates_a_rule(
    rounds_and_view: tuple[SurrogateRounds, Observation], seed: int, shift: float
) -> None:
    rounds, view = rounds_and_view
    limits = rounds.limits
    drawn = np.random.default_rng(seed).normal(shift, 1.0, (2, 8, limits.stations, limits.users))
    first, further = np.where(view.eligible, drawn, -np.inf)
    selected = admit(first, further, view)
    for station in range(limits.stations):
        assert not replace(view, round=station).project(selected).violators.any()
    assert not np.any(selected & (np.maximum(first, further) <= 0))


def test_the_best_pair_is_always_admitted(rounds_and_view: tuple[SurrogateRounds, Observation]) -> None:
    _, view = rounds_and_view
    utilities = np.where(view.eligible, 0.5, -np.inf)
    best = [tuple(np.argwhere(np.isfinite(utilities[n]))[n]) for n in range(8)]
    for n, pair in enumerate(best):
        utilities[n][pair] = 9.0
    selected = admit(utilities, utilities, view)
    assert all(selected[n][pair] for n, pair in enumerate(best))


def test_unwanted_users_are_left_alone(rounds_and_view: tuple[SurrogateRounds, Observation]) -> None:
    rounds, view = rounds_and_view
    utilities = np.full((8, rounds.limits.stations, rounds.limits.users), -1.0)
    assert not admit(utilities, utilities, view).any()
    assert np.all(exchanged_bytes(utilities, utilities) == 0)


def test_every_task_is_covered_before_any_is_filled(rounds_and_view: tuple[SurrogateRounds, Observation]) -> None:
    rounds, view = rounds_and_view
    limits = rounds.limits
    eligible = view.eligible
    first = np.where(eligible, 1.0, -np.inf)
    # One task's further users are wanted more than anything else.
    further = np.where(eligible & (view.identities == 0)[:, None, :], 50.0, np.where(eligible, 0.1, -np.inf))
    plain = view.uplink.fill(view, further)
    covering = admit(first, further, view)
    tasks = [{int(k) for k in view.identities[n][covering[n].any(axis=0)]} for n in range(8)]
    assert all(len(found) == limits.tasks for found in tasks)
    assert not np.array_equal(plain, covering)


def test_the_first_of_a_task_is_its_pair_of_highest_utility() -> None:
    selected = np.array([[[True, True, False], [False, False, True]]])
    first = np.array([[[1.0, 3.0, 9.0], [9.0, 9.0, 2.0]]])
    leads = first_of_tasks(selected, first, np.array([[0, 0, 1]]))
    assert leads.tolist() == [[[False, True, False], [False, False, True]]]


def test_messages_are_counted_by_hand() -> None:
    utilities = np.full((1, 2, 4), -np.inf)
    utilities[0, 0, 1] = utilities[0, 1, 1] = utilities[0, 1, 3] = 1.0
    # Three offers of a number and two utilities, and two wanted users whose gains both stations tell.
    assert exchanged_bytes(utilities, utilities).tolist() == [3 * 12 + 2 * 2 * 4]
