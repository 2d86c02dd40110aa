"""Initial positions of stations and users."""

from __future__ import annotations

import numpy as np

from covey.arrays import FloatArray
from covey.scenario.schema import Network, Point
from covey.seeding import generator


def place(network: Network, seed: int) -> tuple[FloatArray, FloatArray]:
    """Station positions (B, 2) and user positions (U, 2) in metres: those given, else uniform in the area."""
    rng = generator(seed, "placement")
    # Always draw both, so that given positions of one do not change the random positions of the other.
    stations_m = rng.uniform(0.0, network.area_m, (network.stations, 2))
    users_m = rng.uniform(0.0, network.area_m, (network.users, 2))
    return _given_or(network.station_positions_m, stations_m), _given_or(network.user_positions_m, users_m)


def _given_or(points: tuple[Point, ...] | None, drawn_m: FloatArray) -> FloatArray:
    return drawn_m if points is None else np.asarray(points, dtype=np.float64)
