"""A mobility model in one file: users go back and forth along the x axis.

covey run quick --set mobility.model=examples.parts.shuttle:Shuttle
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.scenario.schema import Mobility

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shuttle:
    """Every user moves right until it reaches the border of the area, then left, and so on.

    The model is stateless: the direction of each user is in the memory, which a run saves and restores.
    """

    mobility: Mobility
    area_m: tuple[float, float]

    def start(self, positions_m: Floats, rng: np.random.Generator) -> Floats:
        """(U, 1) initial directions: all users start to the right."""
        return np.ones((len(positions_m), 1))

    def move(
        self, positions_m: Floats, memory: Floats, duration_s: float, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Positions (U, 2) in metres and directions (U, 1) after `duration_s` seconds."""
        moved, width = positions_m.copy(), self.area_m[0]
        x = moved[:, 0] + memory[:, 0] * self.mobility.speed_m_s * duration_s
        turned = (x < 0.0) | (x > width)
        moved[:, 0] = np.clip(np.where(x > width, 2.0 * width - x, np.abs(x)), 0.0, width)
        return moved, np.where(turned[:, None], -memory, memory)
