"""The paper's uplink: orthogonal blocks in every cell, reused by other cells while all links meet the SINR floor."""

from __future__ import annotations

import numpy as np

from covey.allocation import admission_kernels as kernels
from covey.allocation.blocks import match_blocks, required_sinr, stations_of
from covey.arrays import BoolArray, FloatArray, IntArray, joined
from covey.network import NetworkLimits, Observation, Plan
from covey.radio import uplink_rates
from covey.uplink.ofdma_admission import OfdmaAdmission, descending
from covey.uplink.protocol import AirTime, Uplink, project_observed


class Ofdma(Uplink):
    """R resource blocks per station; rates by Eq. (9), blocks by the iterated safe matching (errata E24)."""

    def grant(self, observation: Observation, station: IntArray) -> IntArray:
        """The block (..., U) of every user, -1 for none."""
        return match_blocks(
            observation.gains,
            station,
            observation.samples,
            observation.limits.radio,
            first_station=observation.first_station,
        ).block

    def project(self, observation: Observation, selected: BoolArray) -> Plan:
        """The valid plan that remains of a selection (..., B, U), and its violations; calls the matching directly."""
        return project_observed(observation, selected)

    def rates(self, gains: FloatArray, plan: Plan, limits: NetworkLimits) -> FloatArray:
        """Uplink rate of every user in bit/s, (U,), under the interference of the plan's other cells."""
        return self._rates(gains, plan.station, plan.block, limits)

    def survivors(self, observation: Observation, selected: BoolArray) -> BoolArray:
        """The selection (..., B, U) without the users that the block matching does not serve.

        The matching tries all starting stations, so that the result does not depend on which one goes first.
        """
        selected = np.asarray(selected, dtype=np.bool_)
        _check_pairs("selected", selected, observation)
        station = joined(stations_of(selected), np.int64, 1)
        gains, weights = joined(observation.gains, np.float64, 2), joined(observation.samples, np.float64, 1)
        unsettled = np.arange(len(station))
        while len(unsettled):
            block = match_blocks(
                gains[unsettled], station[unsettled], weights[unsettled], observation.limits.radio
            ).block
            lost = (station[unsettled] >= 0) & (block < 0)
            station[unsettled] = np.where(lost, -1, station[unsettled])
            unsettled = unsettled[lost.any(axis=1)]
        served = (station >= 0).reshape(selected.shape[:-2] + selected.shape[-1:])
        return np.asarray(selected & served[..., None, :])

    def admission(self, observation: Observation, selected: BoolArray | None = None) -> OfdmaAdmission:
        """A plan of one network that grows user by user, starting from the blocks of `selected` (B, U), or empty."""
        if selected is None:
            return OfdmaAdmission(observation)
        matching = match_blocks(observation.gains, stations_of(selected), observation.samples, observation.limits.radio)
        return OfdmaAdmission.of_plan(observation, matching.station, matching.block)

    def fill(
        self,
        observation: Observation,
        scores: FloatArray,
        *,
        minimum: float = -np.inf,
        first: FloatArray | None = None,
    ) -> BoolArray:
        """The users (..., B, U) that empty plans admit, the highest of `scores` (..., B, U) first; in one kernel."""
        eligible, scores = observation.eligible, np.asarray(scores)
        _check_pairs("scores", scores, observation)
        stations, users = eligible.shape[-2:]

        def flat(score: FloatArray) -> FloatArray:
            # Ineligible pairs go to the end of the order, where the pass stops.
            pairs = joined(np.where(eligible, score, -np.inf), np.float64, 2)
            return pairs.reshape(len(pairs), stations * users)

        radio, ordered = observation.limits.radio, flat(scores)
        ahead = np.zeros((0, stations * users)) if first is None else flat(first)
        return kernels.fill_all(
            ahead,
            descending(ahead),
            ordered,
            descending(ordered),
            joined(observation.identities, np.int64, 1),
            joined(eligible, np.bool_, 2),
            joined(radio.power_w * observation.gains, np.float64, 2),
            observation.limits.tasks,
            int(radio.blocks),
            int(radio.downlink_slots),
            float(radio.noise_w),
            float(required_sinr(radio.min_sinr)),
            float(minimum),
        ).reshape(eligible.shape)

    def unscheduled(self, gains: FloatArray, users: IntArray, bits: float, limits: NetworkLimits) -> AirTime:
        """Uploads to the strongest stations; blocks are used in turn and without reuse, so that each station's queue
        takes its total time divided by R."""
        one_by_one = super().unscheduled(gains, users, bits, limits)
        return AirTime(one_by_one.upload_s, one_by_one.total_s / limits.radio.blocks)

    def alone_bps(self, gains: FloatArray, limits: NetworkLimits) -> FloatArray:
        """(U, B) rate of every user at every station without interference."""
        users, stations = gains.shape
        # Treat every pair as a separate user on its own block, so that there is no interference.
        station = np.tile(np.arange(stations), users)
        pairs = np.repeat(gains, stations, axis=0)
        return self._rates(pairs, station, np.arange(users * stations), limits).reshape(users, stations)

    def _rates(self, gains: FloatArray, station: IntArray, block: IntArray, limits: NetworkLimits) -> FloatArray:
        return uplink_rates(
            gains,
            station,
            block,
            power_w=limits.radio.power_w,
            noise_w=limits.radio.noise_w,
            bandwidth_hz=self.radio.block_bandwidth_hz,
        )


def _check_pairs(name: str, pairs: BoolArray | FloatArray, observation: Observation) -> None:
    """Raise ValueError where the observation's gains or an array of pairs (..., B, U) have the wrong shape."""
    gains, users = observation.gains.shape, observation.identities.shape
    wanted = (*users, observation.limits.stations)
    if gains != wanted or pairs.shape != (*users[:-1], wanted[-1], users[-1]):
        raise ValueError(
            f"{name} {pairs.shape} and gains {gains} do not fit together; they must be (..., B, U) and (..., U, B),"
            f" here with {wanted[-1]} stations and {users[-1]} users"
        )
