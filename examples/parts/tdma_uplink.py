"""An uplink of your own in one file: time slots instead of frequency blocks.

One user transmits at a time, over the whole band of R blocks; every station has R slots, and stations take turns, so
that there is no interference. Use it from a scenario, the command line or Python as

    radio.uplink = "examples.parts.tdma_uplink:Tdma"
"""

from __future__ import annotations

import numpy as np

from covey.arrays import FloatArray, IntArray
from covey.network import NetworkLimits, Observation, Plan
from covey.uplink import AirTime, Uplink


class Tdma(Uplink):
    """Time-division multiple access: a user's block is the index of its slot at its station."""

    def grant(self, observation: Observation, station: IntArray) -> IntArray:
        """The slot (..., U) of every user that reaches the rate floor at its station, -1 for none."""
        gains = np.take_along_axis(observation.gains, np.maximum(station, 0)[..., None], axis=-1)[..., 0]
        heard = (station >= 0) & (self._rate_bps(gains, observation.limits) >= self.radio.min_rate_bps)
        # Slots are numbered per station, by increasing user index.
        at = (station[..., None] == np.arange(observation.limits.stations)) & heard[..., None]
        slot = np.cumsum(at, axis=-2) - 1
        return np.where(heard, np.take_along_axis(slot, np.maximum(station, 0)[..., None], axis=-1)[..., 0], -1)

    def rates(self, gains: FloatArray, plan: Plan, limits: NetworkLimits) -> FloatArray:
        """Rate of every user in its slot in bit/s, (U,), 0 for users that are not served."""
        at_station = gains[np.arange(len(gains)), np.maximum(plan.station, 0)]
        return np.where(plan.served, self._rate_bps(at_station, limits), 0.0)

    def air_time(self, rates: FloatArray, plan: Plan, bits: float | FloatArray) -> AirTime:
        """Every user's slot lasts as long as its upload; the slots of all stations are consecutive."""
        slots_s = super().air_time(rates, plan, bits).upload_s
        return AirTime(slots_s, float(slots_s.sum()))

    def unscheduled(self, gains: FloatArray, users: IntArray, bits: float, limits: NetworkLimits) -> AirTime:
        """Uploads without a plan, each to the strongest station, are consecutive as well."""
        slots_s = super().unscheduled(gains, users, bits, limits).upload_s
        return AirTime(slots_s, float(slots_s.sum()))

    def alone_bps(self, gains: FloatArray, limits: NetworkLimits) -> FloatArray:
        """(U, B) rate of every user at every station, always free of interference."""
        return self._rate_bps(gains, limits)

    def _rate_bps(self, gains: FloatArray, limits: NetworkLimits) -> FloatArray:
        """Rate over the whole band, with the noise power of all its blocks."""
        radio = limits.radio
        snr = radio.power_w * gains / (radio.blocks * radio.noise_w)
        return np.asarray(radio.blocks * self.radio.block_bandwidth_hz * np.log2(1.0 + snr))
