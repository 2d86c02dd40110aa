from __future__ import annotations

import pytest

from covey.scenario import Scenario, load_scenario
from covey.simulation import History, simulate


@pytest.fixture(scope="session")
def quick() -> Scenario:
    return load_scenario("quick")


@pytest.fixture(scope="session")
def quick_history(quick: Scenario) -> History:
    return simulate(quick, "greedy", seed=0)
