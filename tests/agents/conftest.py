from __future__ import annotations

import numpy as np
import pytest

from covey.environment import SurrogateRounds, calibration_for
from covey.network import Observation
from covey.scenario import Scenario, load_scenario


@pytest.fixture(scope="session")
def quick() -> Scenario:
    return load_scenario("quick")


@pytest.fixture
def rounds(quick: Scenario) -> SurrogateRounds:
    networks = SurrogateRounds(quick, calibration_for(quick), 6)
    networks.reset(range(6))
    return networks


@pytest.fixture
def view(rounds: SurrogateRounds) -> Observation:
    rounds.step(np.zeros((6, rounds.limits.stations, rounds.limits.users), dtype=bool))
    return rounds.observation
