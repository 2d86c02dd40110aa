from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from covey.network import RadioLimits

POWER_W = 1.0
NOISE_W = 1e-12
MIN_SINR = 1.0


@dataclass
class Instance:
    gains: np.ndarray
    identities: np.ndarray
    capable: np.ndarray
    samples: np.ndarray
    blocks: int

    @property
    def radio(self) -> RadioLimits:
        return self.limited(99)

    def limited(self, slots: int) -> RadioLimits:
        """The radio with so many broadcasts in a round."""
        return RadioLimits(self.blocks, slots, POWER_W, NOISE_W, MIN_SINR)

    def selection(self, rng: np.random.Generator) -> np.ndarray:
        """A random selection (B, U) of able users, one station each, at most R per station."""
        stations = len(self.capable)
        selected = np.zeros((stations, len(self.samples)), dtype=bool)
        for b in rng.permutation(stations):
            able = np.flatnonzero(self.capable[b, self.identities] & ~selected.any(axis=0))
            selected[b, rng.permutation(able)[: self.blocks]] = True
        return selected


def make_instance(
    seed: int, *, stations: int = 4, users: int = 12, tasks: int = 4, blocks: int = 4, area_m: float = 500.0
) -> Instance:
    """Stations and users at random in a square, macro path loss, three tasks per station."""
    rng = np.random.default_rng(seed)
    where = rng.uniform(0, area_m, (stations + users, 2))
    distance_m = np.linalg.norm(where[stations:, None] - where[None, :stations], axis=-1)
    gains = 10 ** (-(128.1 + 37.6 * np.log10(np.maximum(distance_m, 10.0) / 1000)) / 10)
    capable = np.zeros((stations, tasks), dtype=bool)
    for b in range(stations):
        capable[b, [(b + j) % tasks for j in range(min(3, tasks))]] = True
    return Instance(gains, rng.integers(0, tasks, users), capable, rng.integers(200, 601, users), blocks)


@pytest.fixture
def instance() -> Callable[..., Instance]:
    return make_instance


@pytest.fixture
def smallest_sinr() -> Callable[[np.ndarray, np.ndarray, np.ndarray], float]:
    """The smallest SINR of all granted links, by loops."""

    def smallest(gains: np.ndarray, station: np.ndarray, block: np.ndarray) -> float:
        served = [i for i in range(len(gains)) if station[i] >= 0 and block[i] >= 0]
        worst = np.inf
        for i in served:
            others = [p for p in served if block[p] == block[i] and station[p] != station[i]]
            interference_w = sum(POWER_W * gains[p, station[i]] for p in others)
            worst = min(worst, POWER_W * gains[i, station[i]] / (NOISE_W + interference_w))
        return float(worst)

    return smallest
