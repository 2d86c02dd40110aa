"""A plan that grows user by user and stays valid: blocks, interference and broadcast slots in one place."""

from __future__ import annotations

from typing import Self

import numpy as np

from covey.allocation.arrays import BoolArray, FloatArray, IntArray
from covey.allocation.blocks import required_sinr
from covey.association.observation import Observation


class Admission:
    """A valid partial plan. `candidates()` says who could still join; `admit` and `remove` change it.

    station, block: (U,), -1 for users that are not served; members: (B, K) served users of every broadcast.
    """

    def __init__(self, observation: Observation) -> None:
        stations, tasks = observation.capable.shape
        users, blocks = len(observation.identities), observation.blocks
        self._identities = observation.identities
        self._slots = observation.downlink_slots
        self._eligible = observation.eligible
        self._received_w = observation.power_w * observation.gains
        # Interference that each user can bear at each station, (U, B).
        self._bearable_w = self._received_w / required_sinr(observation.min_sinr) - observation.noise_w
        self.samples: FloatArray = np.asarray(observation.samples, dtype=np.float64)
        self.station: IntArray = np.full(users, -1, dtype=np.int64)
        self.block: IntArray = np.full(users, -1, dtype=np.int64)
        self.members: IntArray = np.zeros((stations, tasks), dtype=np.int64)
        # (B, R): the user that holds each block of each station.
        self._holder = np.full((stations, blocks), -1, dtype=np.int64)
        # (R, B, U): whether the user could take the block of the station now.
        self._fits = np.repeat((self._bearable_w.T >= 0)[None], blocks, axis=0)

    @classmethod
    def of_plan(cls, observation: Observation, station: IntArray, block: IntArray) -> Self:
        """The valid plan in which users hold these stations and blocks, (U,), -1 for none."""
        plan = cls(observation)
        users = np.flatnonzero(station >= 0)
        plan.station[users], plan.block[users] = station[users], block[users]
        np.add.at(plan.members, (station[users], observation.identities[users]), 1)
        plan._holder[station[users], block[users]] = users
        for n in np.unique(block[users]):
            plan._refresh(int(n))
        return plan

    @property
    def value(self) -> tuple[float, int]:
        """What the policies maximise: samples of the served users, then few broadcasts."""
        return self.served_samples, -self.broadcasts

    @property
    def served_samples(self) -> float:
        """Samples of all served users."""
        return float(self.samples[self.station >= 0].sum())

    @property
    def broadcasts(self) -> int:
        """Number of (station, task) broadcasts in use."""
        return int(np.count_nonzero(self.members))

    @property
    def selected(self) -> BoolArray:
        """The selection (B, U) that this plan stands for."""
        return np.asarray(self.station == np.arange(len(self.members))[:, None])

    def candidates(self) -> BoolArray:
        """(B, U): pairs that can be admitted now without breaking any rule."""
        open_pairs = self._eligible & (self.station < 0)
        if self.broadcasts >= self._slots:
            open_pairs &= self.members[:, self._identities] > 0
        return np.asarray(open_pairs & self._fits.any(axis=0))

    def admit(self, station: int, user: int) -> None:
        """Serve a candidate, on the most used block that it fits in: empty blocks stay free for harder users."""
        fitting = np.flatnonzero(self._fits[:, station, user])
        if self.station[user] >= 0 or len(fitting) == 0:
            raise ValueError(f"user {user} cannot be admitted by station {station}; choose one of candidates()")
        block = int(fitting[np.argmax(np.count_nonzero(self._holder[:, fitting] >= 0, axis=0))])
        self.station[user], self.block[user] = station, block
        self.members[station, self._identities[user]] += 1
        self._holder[station, block] = user
        self._refresh(block)

    def remove(self, user: int) -> None:
        """Stop serving a user."""
        station, block = int(self.station[user]), int(self.block[user])
        self.station[user] = self.block[user] = -1
        self.members[station, self._identities[user]] -= 1
        self._holder[station, block] = -1
        self._refresh(block)

    def copy(self) -> Self:
        """An independent copy; what never changes is shared."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        for name in ("station", "block", "members", "_holder", "_fits"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def _refresh(self, block: int) -> None:
        """Recompute who fits into a block, from its holders alone, so that no rounding accumulates."""
        holders = self._holder[:, block]
        busy = np.flatnonzero(holders >= 0)
        spill_w = self._received_w[holders[busy]]
        spill_w[np.arange(len(busy)), busy] = 0.0
        interference_w = spill_w.sum(axis=0)
        slack_w = self._bearable_w[holders[busy], busy] - interference_w[busy]
        harmless = np.all(self._received_w[:, busy] <= slack_w, axis=1)
        fits = (self._bearable_w >= interference_w).T & harmless
        fits[busy] = False
        self._fits[block] = fits
