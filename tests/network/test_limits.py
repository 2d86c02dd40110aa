from __future__ import annotations

import numpy as np
import pytest

from covey.errors import ScenarioError
from covey.network import NetworkLimits, RadioLimits, min_sinr, model_bits
from covey.scenario import Scenario, load_scenario

GOOD = {"blocks": 4, "downlink_slots": 6, "power_w": 1.0, "noise_w": 1e-12, "min_sinr": 1.0}


def test_min_sinr() -> None:
    assert min_sinr(1e6, 1e6) == pytest.approx(1.0)
    assert min_sinr(2e6, 1e6) == pytest.approx(3.0)


def test_model_bits_are_given_or_counted() -> None:
    scenario = load_scenario("quick", ["radio.bits_per_weight=16"])
    assert model_bits(scenario.radio, 100) == 1600
    assert model_bits(load_scenario("quick", ["radio.model_bits=77"]).radio, 100) == 77


def test_the_limits_of_a_scenario() -> None:
    scenario = load_scenario("paper")
    limits = NetworkLimits.of(scenario, 1_000_000)
    assert (limits.stations, limits.tasks, limits.users) == (4, 4, 12)
    assert limits.radio == RadioLimits(4, 6, 1.0, 1e-12, 1.0)
    assert limits.capable.sum(axis=1).tolist() == [3] * 4
    assert limits.diagonal_m == pytest.approx(np.hypot(500, 500))
    assert limits.rounds == scenario.training.rounds


def test_stations_that_do_not_know_tasks_see_one() -> None:
    limits = NetworkLimits.of(Scenario(), 650).without_tasks()
    assert limits.capable.tolist() == [[True]] * 4
    assert limits.radio.downlink_slots == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("blocks", 0),
        ("min_sinr", 0.0),
        ("min_sinr", np.nan),
        ("downlink_slots", -1),
        ("power_w", np.inf),
        ("noise_w", -1.0),
    ],
)
def test_wrong_numbers_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        RadioLimits(**{**GOOD, name: value})


def test_a_misspelt_uplink_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ScenarioError, match=r"the uplink 'ofdm' is unknown.*did you mean 'ofdma'"):
        load_scenario("quick", ["radio.uplink=ofdm"])
