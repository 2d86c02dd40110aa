"""A path loss and a channel in one file: free space, and a wall through the middle of the area.

covey run quick --set radio.path_loss=examples.parts.walls:free_space
covey run quick --set radio.channel=examples.parts.walls:Walled
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from covey.radio import Channel
from covey.radio.channel import PathLoss
from covey.scenario.schema import Radio

Floats = npt.NDArray[np.float64]

#: Loss of a link that crosses the wall, dB, and x position of the wall, metres.
WALL_DB, WALL_X_M = 10.0, 250.0


def free_space(radio: Radio) -> PathLoss:
    """Friis' formula: 20 log10(4 pi d f / c) dB."""
    at_one_metre_db = 20.0 * math.log10(4.0 * math.pi * radio.carrier_hz / 299_792_458.0)
    return lambda distance_m: at_one_metre_db + 20.0 * np.log10(distance_m)


class Walled(Channel):
    """The scenario's channel, and less gain for users and stations on different sides of the wall."""

    def gains(self, users_m: Floats, stations_m: Floats, round: int) -> Floats:
        """Linear power gains (U, B) in this round, from positions in metres, (U, 2) and (B, 2)."""
        apart = (users_m[:, None, 0] < WALL_X_M) != (stations_m[None, :, 0] < WALL_X_M)
        return np.where(apart, 10.0 ** (-WALL_DB / 10.0), 1.0) * super().gains(users_m, stations_m, round)
