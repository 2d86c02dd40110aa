from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.allocation import project_many
from covey.environment import SurrogateRounds, View, calibration_for
from covey.learners.guard import admit, exchanged_bytes
from covey.scenario import load_scenario


@pytest.fixture(scope="module")
def site_and_view() -> tuple[SurrogateRounds, View]:
    scenario = load_scenario("quick")
    rounds = SurrogateRounds(scenario, calibration_for(scenario), 8)
    return rounds, rounds.reset(range(8))


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 3.0))
@settings(max_examples=150, deadline=None)
def test_whatever_the_utilities_nobody_violates_a_rule(
    site_and_view: tuple[SurrogateRounds, View], seed: int, shift: float
) -> None:
    rounds, view = site_and_view
    site = rounds.site
    utilities = np.random.default_rng(seed).normal(shift, 1.0, (8, site.stations, site.users))
    selected = admit(np.where(view.eligible(site), utilities, -np.inf), view, site)
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
    assert not np.any(selected & (utilities <= 0))


def test_the_best_pair_is_always_admitted(site_and_view: tuple[SurrogateRounds, View]) -> None:
    rounds, view = site_and_view
    utilities = np.where(view.eligible(rounds.site), 0.5, -np.inf)
    best = [tuple(np.argwhere(np.isfinite(utilities[n]))[n]) for n in range(8)]
    for n, pair in enumerate(best):
        utilities[n][pair] = 9.0
    selected = admit(utilities, view, rounds.site)
    assert all(selected[n][pair] for n, pair in enumerate(best))


def test_unwanted_users_are_left_alone(site_and_view: tuple[SurrogateRounds, View]) -> None:
    rounds, view = site_and_view
    utilities = np.full((8, rounds.site.stations, rounds.site.users), -1.0)
    assert not admit(utilities, view, rounds.site).any()
    assert np.all(exchanged_bytes(utilities) == 0)


def test_messages_are_counted_by_hand() -> None:
    utilities = np.full((1, 2, 4), -np.inf)
    utilities[0, 0, 1] = utilities[0, 1, 1] = utilities[0, 1, 3] = 1.0
    # Three offers of number and utility, and two wanted users whose gains both stations tell.
    assert exchanged_bytes(utilities).tolist() == [3 * 8 + 2 * 2 * 4]
