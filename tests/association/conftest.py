from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.networks import projected

from covey.network import Observation


@pytest.fixture
def served_samples() -> Callable[[Observation, np.ndarray], float]:
    def served(observation: Observation, selected: np.ndarray) -> float:
        return float(observation.samples[projected(observation, selected).served].sum())

    return served
