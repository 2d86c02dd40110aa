from __future__ import annotations

import numpy as np
import pytest

from covey.environment import SurrogateRounds, View, calibration_for
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
def view(rounds: SurrogateRounds) -> View:
    rounds.step(np.zeros((6, rounds.site.stations, rounds.site.users), dtype=bool))
    return rounds.view
