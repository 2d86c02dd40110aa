"""Rates, times and energies of one round's links."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray
from covey.scenario.schema import Compute

#: More broadcasts than any network has pairs of a station and a task; the next integer types end at 10^18.
_MOST_SLOTS = 10**12
#: Relative tolerance of the downlink limit, so that rounding never loses a slot.
_SLOT_TOLERANCE = 1e-9


def dbm_to_w(power_dbm: float) -> float:
    """Power in watts of a power in dBm."""
    return float(10.0 ** (power_dbm / 10.0 - 3.0))


def uplink_rates(
    gains: FloatArray,
    station: IntArray,
    block: IntArray,
    *,
    power_w: float,
    noise_w: float,
    bandwidth_hz: float,
) -> FloatArray:
    """Uplink rate of every user in bit/s, (U,), 0 without station or block; Eq. (9).

    gains: (U, B) linear power gains; station, block: (U,), -1 for none; power_w: transmit power of
    each user; noise_w: noise in one block; bandwidth_hz: width of one block.
    """
    rates = np.zeros(len(gains))
    served = np.flatnonzero((station >= 0) & (block >= 0))
    at, on = station[served], block[served]
    interferes = (on[:, None] == on) & (at[:, None] != at)
    # The interferer's gain to the receiving station, not to its own: errata E20.
    received_w = power_w * gains[served][:, at].T
    interference_w = np.where(interferes, received_w, 0.0).sum(axis=1)
    rates[served] = bandwidth_hz * np.log2(1.0 + np.diagonal(received_w) / (interference_w + noise_w))
    return rates


def broadcast_times(active: BoolArray, model_bits: float, rate_bps: float) -> FloatArray:
    """Downlink time of every station in seconds, (B,), one model per active task; active: (B, K); Eq. (10)."""
    return np.asarray(active.sum(axis=1) * (model_bits / rate_bps), dtype=np.float64)


def downlink_slots(limit_s: float, model_bits: float, rate_bps: float) -> int:
    """Number of (station, task) broadcasts that fit into `limit_s` seconds together, (11c)."""
    return math.floor(min(limit_s * rate_bps / model_bits * (1.0 + _SLOT_TOLERANCE), _MOST_SLOTS))


def uplink_times(rates_bps: FloatArray, bits: float | FloatArray) -> FloatArray:
    """Upload time of `bits`, one number or (U,), of every user in seconds, (U,), 0 for users without a link."""
    return np.divide(bits, rates_bps, out=np.zeros_like(rates_bps), where=rates_bps > 0)


@dataclass(frozen=True)
class Overhead:
    """Communication time and energy of one round (errata E27: served users and sent broadcasts only)."""

    #: Upload time of every user in seconds, (U,).
    uplink_s: FloatArray
    #: Broadcast time of every station in seconds, (B,).
    downlink_s: FloatArray
    #: Transmit energy of every user in joules, (U,).
    user_energy_j: FloatArray
    #: Transmit energy of every station in joules, (B,).
    station_energy_j: FloatArray

    @property
    def delay_s(self) -> float:
        """The slowest upload plus all broadcasts, in seconds."""
        return float(self.uplink_s.max(initial=0.0) + self.downlink_s.sum())

    @property
    def energy_j(self) -> float:
        """Energy of all users and stations in joules."""
        return float(self.user_energy_j.sum() + self.station_energy_j.sum())


def overhead(
    rates_bps: FloatArray,
    active: BoolArray,
    *,
    model_bits: float,
    downlink_rate_bps: float,
    user_power_w: float,
    station_power_w: float,
    uploads: int = 1,
) -> Overhead:
    """Times and energies of a round with uplink rates (U,) and broadcasts `active` (B, K).

    uploads: models that each served user sends, more than 1 when it fills several slots.
    """
    uplink_s = uplink_times(rates_bps, uploads * model_bits)
    downlink_s = broadcast_times(active, model_bits, downlink_rate_bps)
    return Overhead(uplink_s, downlink_s, user_power_w * uplink_s, station_power_w * downlink_s)


def compute_cycles(samples: FloatArray | IntArray, passes: float, weights: int, compute: Compute) -> FloatArray:
    """Processor cycles (U,) of `passes` forward-plus-backward passes over `samples` (U,) with `weights` weights."""
    return np.asarray(compute.cycles_per_weight * weights * passes * samples, dtype=np.float64)


def compute_times(samples: FloatArray | IntArray, passes: float, weights: int, compute: Compute) -> FloatArray:
    """Computing time of every user in seconds, (U,)."""
    return compute_cycles(samples, passes, weights, compute) / compute.frequency_hz


def compute_energies(samples: FloatArray | IntArray, passes: float, weights: int, compute: Compute) -> FloatArray:
    """Computing energy of every user in joules, (U,): capacitance x frequency^2 per cycle."""
    return compute_cycles(samples, passes, weights, compute) * compute.capacitance * compute.frequency_hz**2
