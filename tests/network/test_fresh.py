"""Broadcasts of models that nobody uploaded for, within the downlink limit where that is possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from covey.network import NetworkLimits, with_fresh
from covey.scenario import load_scenario


def limits(slots: int) -> NetworkLimits:
    """Four stations and four tasks of `quick`: station b runs b, b+1 and b+2 modulo 4."""
    found = NetworkLimits.of(load_scenario("quick"), 650)
    return replace(found, radio=replace(found.radio, downlink_slots=slots))


def sent(*pairs: tuple[int, int]) -> np.ndarray:
    active = np.zeros((4, 4), dtype=bool)
    for station, task in pairs:
        active[station, task] = True
    return active


def fresh(*tasks: int) -> np.ndarray:
    return np.isin(np.arange(4), tasks)


def test_a_fresh_model_is_sent_by_the_first_station_that_runs_its_task() -> None:
    before = sent((0, 0), (3, 3))
    found = with_fresh(before, fresh(2), limits(6))
    np.testing.assert_array_equal(found, sent((0, 0), (3, 3), (0, 2)))
    np.testing.assert_array_equal(before, sent((0, 0), (3, 3)))
    # Station 0 does not run task 3.
    np.testing.assert_array_equal(with_fresh(sent(), fresh(3), limits(6)), sent((1, 3)))


def test_a_fresh_model_that_is_sent_anyway_is_sent_as_before() -> None:
    before = sent((1, 2), (2, 2))
    np.testing.assert_array_equal(with_fresh(before, fresh(2), limits(2)), before)
    np.testing.assert_array_equal(with_fresh(before, fresh(), limits(1)), before)


def test_at_the_limit_a_model_that_is_sent_twice_is_sent_once() -> None:
    found = with_fresh(sent((0, 0), (0, 1), (1, 1)), fresh(2), limits(3))
    np.testing.assert_array_equal(found, sent((0, 0), (0, 1), (0, 2)))


def test_the_limit_is_kept_wherever_every_model_can_be_sent_once() -> None:
    """Over all broadcasts of up to so many models: nothing is left out, and no more is sent than fits."""
    rng = np.random.default_rng(0)
    for slots in range(4, 9):
        constants = limits(slots)
        for _ in range(300):
            active = constants.capable & (rng.random((4, 4)) < 0.5)
            while active.sum() > slots:
                active[tuple(rng.permutation(np.argwhere(active))[0])] = False
            new = rng.random(4) < 0.5
            found = with_fresh(active, new, constants)
            assert found.sum() <= slots
            assert not (found & ~constants.capable).any()
            np.testing.assert_array_equal(found.any(axis=0), active.any(axis=0) | new)


def test_only_where_all_are_sent_once_is_the_limit_exceeded() -> None:
    """As in the first round, when every model has to be heard."""
    found = with_fresh(sent((0, 0), (1, 1)), fresh(2), limits(2))
    np.testing.assert_array_equal(found, sent((0, 0), (1, 1), (0, 2)))
    crowded = with_fresh(sent((0, 0), (0, 1), (1, 1)), fresh(2, 3), limits(3))
    np.testing.assert_array_equal(crowded.sum(axis=0), [1, 1, 1, 1])


@pytest.mark.parametrize("slots", [0, 1])
def test_a_network_without_room_still_sends_each_once(slots: int) -> None:
    found = with_fresh(sent(), fresh(0, 1, 2, 3), limits(slots))
    np.testing.assert_array_equal(found.sum(axis=0), [1, 1, 1, 1])
