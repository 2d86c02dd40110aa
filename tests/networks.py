"""Networks at random, as policies see them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from covey.network import NetworkLimits, Observation, Plan, RadioLimits
from covey.scenario import Scenario
from covey.uplink.ofdma import Ofdma


def make_observation(
    seed: int, *, stations: int = 4, users: int = 12, tasks: int = 4, blocks: int = 4, slots: int = 6,
    area_m: float = 500.0, available: float = 1.0,
) -> Observation:  # fmt: skip
    """Stations and users at random in a square, macro path loss, three tasks per station."""
    rng = np.random.default_rng(seed)
    where = rng.uniform(0, area_m, (stations + users, 2))
    distance_m = np.linalg.norm(where[stations:, None] - where[None, :stations], axis=-1)
    capable = np.zeros((stations, tasks), dtype=bool)
    for b in range(stations):
        capable[b, [(b + j) % tasks for j in range(min(3, tasks))]] = True
    return Observation(
        round=seed % 15,
        identities=rng.integers(0, tasks, users),
        distances_m=distance_m,
        gains=10 ** (-(128.1 + 37.6 * np.log10(np.maximum(distance_m, 10.0) / 1000)) / 10),
        samples=rng.integers(200, 601, users),
        available=rng.random(users) < available,
        kept=np.zeros(users, dtype=bool),
        limits=NetworkLimits(
            radio=RadioLimits(blocks=blocks, downlink_slots=slots, power_w=1.0, noise_w=1e-12, min_sinr=1.0),
            capable=capable,
            users=users,
            diagonal_m=area_m * 2**0.5,
            rounds=15,
            uplink=Ofdma(Scenario()),
        ),
    )


def projected(observation: Observation, selected: np.ndarray, first_station: int = 0) -> Plan:
    return replace(observation, round=first_station).project(selected)
