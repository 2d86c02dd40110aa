"""Constants of a network: radio limits, and the tasks that each station can run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from covey.arrays import BoolArray
from covey.parts import UPLINKS
from covey.radio import dbm_to_w, downlink_slots
from covey.scenario import Scenario
from covey.scenario.schema import Radio

if TYPE_CHECKING:
    from covey.uplink.protocol import Uplink


def model_bits(radio: Radio, weights: int) -> float:
    """Bits on the air of a model with this many weights."""
    return weights * radio.bits_per_weight if radio.model_bits is None else radio.model_bits


def min_sinr(rate_bps: float, bandwidth_hz: float) -> float:
    """The signal-to-interference-and-noise ratio (linear) at which a block of this bandwidth carries this rate."""
    return float(2.0 ** (rate_bps / bandwidth_hz) - 1.0)


def capability(scenario: Scenario) -> BoolArray:
    """(B, K) bool: which station can run which task."""
    capable = np.zeros((scenario.network.stations, scenario.network.tasks), dtype=bool)
    for station, tasks in enumerate(scenario.network.station_tasks):
        capable[station, list(tasks)] = True
    return capable


def with_fresh(active: BoolArray, fresh: BoolArray, limits: NetworkLimits) -> BoolArray:
    """(B, K) broadcasts `active`, and one of each `fresh` model (K,) by the first station that runs its task.

    Where the downlink limit (11c) is reached, a model that several stations send is sent by one station fewer: every
    user hears every broadcast. Only where all models are sent once is the limit exceeded, as in the first round.
    """
    active = active.copy()
    for task in np.flatnonzero(fresh & ~active.any(axis=0)):
        repeated = np.argwhere(active & (active.sum(axis=0) > 1))
        if active.sum() >= limits.radio.downlink_slots and len(repeated):
            station, model = repeated[-1]
            active[station, model] = False
        active[int(limits.capable[:, task].argmax()), task] = True
    return active


@dataclass(frozen=True)
class RadioLimits:
    """Radio limits.

    blocks: R, resource blocks of every station; downlink_slots: (station, task) broadcasts that fit in a round, of all
    stations together, (11c); power_w: transmit power of a user, W; noise_w: receiver noise in one block, W; min_sinr:
    the SINR (linear) at which a block carries the rate floor (11d).
    """

    blocks: int
    downlink_slots: int
    power_w: float
    noise_w: float
    min_sinr: float

    def __post_init__(self) -> None:
        if self.blocks < 1 or not self.min_sinr > 0:
            raise ValueError(f"blocks ({self.blocks}) must be at least 1 and min_sinr ({self.min_sinr}) positive")
        if self.downlink_slots < 0:
            raise ValueError(f"downlink_slots is {self.downlink_slots}; it must be 0 or more")
        for name in ("power_w", "noise_w"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be finite and not negative")

    @classmethod
    def of(cls, radio: Radio, blocks: int, model_bits: float) -> Self:
        """The limits of a scenario's radio, with `blocks` blocks per station and models of `model_bits` bits."""
        return cls(
            blocks=blocks,
            downlink_slots=downlink_slots(radio.downlink_limit_s, model_bits, radio.downlink_rate_bps),
            power_w=dbm_to_w(radio.user_power_dbm),
            noise_w=dbm_to_w(radio.noise_dbm_per_block),
            min_sinr=min_sinr(radio.min_rate_bps, radio.block_bandwidth_hz),
        )


@dataclass(frozen=True)
class NetworkLimits:
    """Constants of a network, or of a batch of networks that differ only in layouts and users.

    capable: (B, K) tasks of each station; users: U; diagonal_m: of the area, metres; rounds: T; uplink: which users
    can be served together, and at which rates.
    """

    radio: RadioLimits
    capable: BoolArray
    users: int
    diagonal_m: float
    rounds: int
    uplink: Uplink

    @classmethod
    def of(cls, scenario: Scenario, weights: int) -> Self:
        """The limits of a scenario whose model has this many `weights`."""
        network = scenario.network
        return cls(
            radio=RadioLimits.of(scenario.radio, network.blocks, model_bits(scenario.radio, weights)),
            capable=capability(scenario),
            users=network.users,
            diagonal_m=float(np.hypot(*network.area_m)),
            rounds=scenario.training.rounds,
            uplink=UPLINKS.build(scenario.radio.uplink, scenario),
        )

    def without_tasks(self) -> Self:
        """The limits for stations that do not know tasks: one task that all of them run, one broadcast for each."""
        capable = np.ones((self.stations, 1), dtype=bool)
        return replace(self, capable=capable, radio=replace(self.radio, downlink_slots=self.stations))

    @property
    def stations(self) -> int:
        """Number of stations, B."""
        return len(self.capable)

    @property
    def tasks(self) -> int:
        """Number of tasks, K."""
        return int(self.capable.shape[1])
