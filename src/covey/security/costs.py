"""Costs of secure aggregation: bytes on the air and between stations, and computing time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

#: The phases of a round, in order.
PHASES = ("keys", "shares", "upload", "counts", "unmask")


class CostRecord:
    """Per phase: bytes each user sent and received, bytes between stations, and milliseconds.

    up_bytes, down_bytes: phase -> (U,) bytes, without headers of lower layers. backhaul_bytes: phase ->
    bytes between stations. user_ms: phase -> (U,) computing time of each user; `keys` is key agreement and
    `upload` is masking. station_ms: phase -> computing time of all stations; `unmask` is unmasking.
    """

    def __init__(self, users: int) -> None:
        self.up_bytes: dict[str, NDArray[np.int64]] = {phase: np.zeros(users, dtype=np.int64) for phase in PHASES}
        self.down_bytes: dict[str, NDArray[np.int64]] = {phase: np.zeros(users, dtype=np.int64) for phase in PHASES}
        self.backhaul_bytes: dict[str, int] = dict.fromkeys(PHASES, 0)
        self.user_ms: dict[str, NDArray[np.float64]] = {phase: np.zeros(users) for phase in PHASES}
        self.station_ms: dict[str, float] = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def user_time(self, phase: str, user: int) -> Iterator[None]:
        """Adds the time of the block to this user's phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.user_ms[phase][user] += 1e3 * (time.perf_counter() - start)

    @contextmanager
    def station_time(self, phase: str) -> Iterator[None]:
        """Adds the time of the block to the stations' phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.station_ms[phase] += 1e3 * (time.perf_counter() - start)

    def total_up_bytes(self) -> NDArray[np.int64]:
        """(U,) bytes each user sent in the round."""
        return np.asarray(sum(self.up_bytes.values()), dtype=np.int64)

    def total_down_bytes(self) -> NDArray[np.int64]:
        """(U,) bytes each user received in the round."""
        return np.asarray(sum(self.down_bytes.values()), dtype=np.int64)

    def summary(self) -> dict[str, dict[str, float]]:
        """A JSON-ready table: per phase, means over users and totals of the stations."""
        return {
            phase: {
                "up_bytes_per_user": float(self.up_bytes[phase].mean()),
                "down_bytes_per_user": float(self.down_bytes[phase].mean()),
                "backhaul_bytes": float(self.backhaul_bytes[phase]),
                "user_ms": float(self.user_ms[phase].mean()),
                "stations_ms": self.station_ms[phase],
            }
            for phase in PHASES
        }
