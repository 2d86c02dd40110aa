from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.allocation import project_many
from covey.association.filling import fill_many
from covey.environment import SurrogateRounds, View, calibration_for
from covey.learners.guard import admit, exchanged_bytes, first_of_tasks
from covey.scenario import load_scenario


@pytest.fixture(scope="module")
def site_and_view() -> tuple[SurrogateRounds, View]:
    scenario = load_scenario("quick")
    rounds = SurrogateRounds(scenario, calibration_for(scenario), 8)
    return rounds, rounds.reset(range(8))


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 3.0))
@settings(max_examples=150)
def test_whatever_the_utilities_nobody_violates_a_rule(
    site_and_view: tuple[SurrogateRounds, View], seed: int, shift: float
) -> None:
    rounds, view = site_and_view
    site = rounds.site
    drawn = np.random.default_rng(seed).normal(shift, 1.0, (2, 8, site.stations, site.users))
    first, further = np.where(view.eligible(site), drawn, -np.inf)
    selected = admit(first, further, view, site)
    for first in range(site.stations):
        plans = project_many(
            selected,
            view.identities,
            site.capable,
            view.gains,
            view.samples,
            blocks=site.blocks,
            downlink_slots=site.downlink_slots,
            power_w=site.power_w,
            noise_w=site.noise_w,
            min_sinr=site.min_sinr,
            first_station=np.full(8, first),
        )
        assert not plans.violators.any()
    assert not np.any(selected & (np.maximum(first, further) <= 0))


def test_the_best_pair_is_always_admitted(site_and_view: tuple[SurrogateRounds, View]) -> None:
    rounds, view = site_and_view
    utilities = np.where(view.eligible(rounds.site), 0.5, -np.inf)
    best = [tuple(np.argwhere(np.isfinite(utilities[n]))[n]) for n in range(8)]
    for n, pair in enumerate(best):
        utilities[n][pair] = 9.0
    selected = admit(utilities, utilities, view, rounds.site)
    assert all(selected[n][pair] for n, pair in enumerate(best))


def test_unwanted_users_are_left_alone(site_and_view: tuple[SurrogateRounds, View]) -> None:
    rounds, view = site_and_view
    utilities = np.full((8, rounds.site.stations, rounds.site.users), -1.0)
    assert not admit(utilities, utilities, view, rounds.site).any()
    assert np.all(exchanged_bytes(utilities, utilities) == 0)


def test_every_task_is_covered_before_any_is_filled(site_and_view: tuple[SurrogateRounds, View]) -> None:
    rounds, view = site_and_view
    site = rounds.site
    eligible = view.eligible(site)
    first = np.where(eligible, 1.0, -np.inf)
    # One task's further users are wanted more than anything else.
    further = np.where(eligible & (view.identities == 0)[:, None, :], 50.0, np.where(eligible, 0.1, -np.inf))
    plain = fill_many(
        further, view.identities, eligible, view.gains, blocks=site.blocks, downlink_slots=site.downlink_slots,
        power_w=site.power_w, noise_w=site.noise_w, min_sinr=site.min_sinr,
    )  # fmt: skip
    covering = admit(first, further, view, site)
    tasks = [{int(k) for k in view.identities[n][covering[n].any(axis=0)]} for n in range(8)]
    assert all(len(found) == site.tasks for found in tasks)
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
