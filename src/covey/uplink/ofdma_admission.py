"""The admission of OFDMA: blocks, interference and broadcast slots are tracked by compiled kernels."""

from __future__ import annotations

from typing import Self

import numpy as np

from covey.allocation import admission_kernels as kernels
from covey.allocation.blocks import required_sinr
from covey.arrays import BoolArray, FloatArray, IntArray, dense
from covey.network import Observation
from covey.uplink.admission import Admission


class OfdmaAdmission(Admission):
    """A valid partial plan in which users share blocks as long as every link stays above the SINR floor."""

    _plan: kernels.PartialPlan

    def __init__(self, observation: Observation) -> None:
        super().__init__(observation)
        stations, users = observation.eligible.shape
        if observation.gains.shape != (users, stations):
            raise ValueError(f"gains {observation.gains.shape} must be (U, B), here {(users, stations)}")
        self._slots = int(observation.downlink_slots)
        self._plan = kernels.empty_plan(
            dense(observation.identities, np.int64),
            dense(observation.eligible, np.bool_),
            dense(observation.power_w * observation.gains, np.float64),
            observation.capable.shape[1],
            int(observation.blocks),
            float(observation.noise_w),
            float(required_sinr(observation.min_sinr)),
        )

    @classmethod
    def of_plan(cls, observation: Observation, station: IntArray, block: IntArray) -> Self:
        """The valid plan in which users hold these stations and blocks, (U,), -1 for none."""
        admission = cls(observation)
        plan = admission._plan
        users = np.flatnonzero(station >= 0)
        plan.station[users], plan.block[users] = station[users], block[users]
        np.add.at(plan.members, (station[users], observation.identities[users]), 1)
        plan.holder[station[users], block[users]] = users
        for n in np.unique(block[users]):
            kernels.refresh(plan, int(n))
        return admission

    @property
    def members(self) -> IntArray:
        """Served users of every (station, task) broadcast, (B, K)."""
        return self._plan.members

    def candidates(self) -> BoolArray:
        """(B, U): pairs that can be admitted now without breaking any rule."""
        return kernels.candidates(self._plan, self._slots)

    def admit(self, station: int, user: int) -> None:
        """Serve a candidate, on the most used feasible block: empty blocks stay free for users hard to place."""
        possible = 0 <= station < len(self.members) and self.station[user] < 0
        if not (possible and kernels.admit(self._plan, int(station), int(user))):
            raise ValueError(f"user {user} cannot be admitted by station {station}; choose one of candidates()")

    def fill(self, score: FloatArray, reuse_bonus: float = 0.0) -> None:
        """Admit candidates, the highest `score` (B, U) first, until none is left."""
        score = dense(np.broadcast_to(score, self._plan.eligible.shape), np.float64)
        if reuse_bonus == 0:
            flat = score.ravel()
            kernels.fill_in_order(self._plan, self._slots, flat, descending(flat), -np.inf)
        else:
            kernels.fill_with_bonus(self._plan, self._slots, score, float(reuse_bonus))

    def remove(self, user: int) -> None:
        """Stop serving a user."""
        plan = self._plan
        station, block = int(plan.station[user]), int(plan.block[user])
        plan.station[user] = plan.block[user] = -1
        plan.members[station, plan.identities[user]] -= 1
        plan.holder[station, block] = -1
        kernels.refresh(plan, block)

    def copy(self) -> Self:
        """An independent copy; constant arrays are shared."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        changing = ("station", "block", "members", "holder", "interference_w", "slack_w")
        twin._plan = self._plan._replace(**{name: getattr(self._plan, name).copy() for name in changing})
        return twin


def descending(score: FloatArray) -> IntArray:
    """The order from the highest to the lowest score along the last axis; a stable sort."""
    return np.argsort(-score, axis=-1, kind="stable")
