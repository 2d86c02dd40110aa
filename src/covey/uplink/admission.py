"""Admission: valid plans that grow user by user, from which the reference policies build their selections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import Protocol, Self

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray
from covey.network import Observation, Plan


class Placement(Protocol):
    """Where users are served; station, block: (U,), -1 for users that are not served."""

    @property
    def station(self) -> IntArray:
        """Station of each user."""
        ...

    @property
    def block(self) -> IntArray:
        """Block of each user."""
        ...


class Admission(ABC):
    """A valid partial plan of one network. `candidates()` says who could still join; `admit` and `remove` change it.

    station, block: (U,), -1 for users that are not served; members: (B, K) served users of every broadcast. What a
    subclass keeps as `_plan` says where users are served.
    """

    _plan: Placement

    def __init__(self, observation: Observation) -> None:
        self.samples: FloatArray = np.asarray(observation.samples, dtype=np.float64)

    @property
    def station(self) -> IntArray:
        """Station of each user, (U,), -1 for users that are not served."""
        return self._plan.station

    @property
    def block(self) -> IntArray:
        """Block of each user, (U,), -1 for users that are not served."""
        return self._plan.block

    @property
    @abstractmethod
    def members(self) -> IntArray:
        """Served users of every (station, task) broadcast, (B, K)."""

    @abstractmethod
    def candidates(self) -> BoolArray:
        """(B, U): pairs that can be admitted now without breaking any rule."""

    @abstractmethod
    def admit(self, station: int, user: int) -> None:
        """Serve a candidate; ValueError if the pair is not one."""

    @abstractmethod
    def fill(self, score: FloatArray, reuse_bonus: float = 0.0) -> None:
        """Admit candidates, the highest `score` (B, U) first, until none is left.

        reuse_bonus: relative bonus of pairs whose broadcast is already in use, which cost no downlink slot.
        """

    @abstractmethod
    def remove(self, user: int) -> None:
        """Stop serving a user."""

    @abstractmethod
    def copy(self) -> Self:
        """An independent copy."""

    @property
    def value(self) -> tuple[float, int]:
        """The objective of the policies: samples of the served users, then few broadcasts."""
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
        """The selection (B, U) of this plan."""
        return np.asarray(self.station == np.arange(len(self.members))[:, None])


class TrialAdmission(Admission):
    """An admission for any uplink, which tests whether a user fits by projecting the selection with it.

    One projection per test, so slower than an admission written for its uplink.
    """

    _plan: Plan

    def __init__(self, observation: Observation, selected: BoolArray) -> None:
        super().__init__(observation)
        self._observation, self._eligible = observation, observation.eligible
        self._plan = observation.project(selected)

    @property
    def members(self) -> IntArray:
        """Served users of every (station, task) broadcast, (B, K)."""
        members = np.zeros(self._observation.capable.shape, dtype=np.int64)
        users = np.flatnonzero(self.station >= 0)
        np.add.at(members, (self.station[users], self._observation.identities[users]), 1)
        return members

    def candidates(self) -> BoolArray:
        """(B, U): pairs that can be admitted now without breaking any rule."""
        possible = np.zeros(self._eligible.shape, dtype=bool)
        for station, user in np.argwhere(self._eligible & (self.station < 0)):
            possible[station, user] = self._with(int(station), int(user)) is not None
        return possible

    def admit(self, station: int, user: int) -> None:
        """Serve a candidate."""
        inside = 0 <= station < len(self._eligible) and self.station[user] < 0 and self._eligible[station, user]
        plan = self._with(station, user) if inside else None
        if plan is None:
            raise ValueError(f"user {user} cannot be admitted by station {station}; choose one of candidates()")
        self._plan = plan

    def fill(self, score: FloatArray, reuse_bonus: float = 0.0) -> None:
        """Admit candidates, the highest `score` (B, U) first; a pair that does not fit once is not tried again."""
        score = np.broadcast_to(score, self._eligible.shape)
        left = self._eligible.copy()
        while True:
            left &= self.station < 0
            in_use = self.members[:, self._observation.identities] > 0
            now = np.where(left & (score > -np.inf), np.where(in_use, score * (1.0 + reuse_bonus), score), -np.inf)
            station, user = map(int, np.unravel_index(now.argmax(), now.shape))
            if now[station, user] == -np.inf:
                return
            left[station, user] = False
            plan = self._with(station, user)
            if plan is not None:
                self._plan = plan

    def remove(self, user: int) -> None:
        """Stop serving a user."""
        selected = self.selected
        selected[:, user] = False
        self._plan = self._observation.project(selected)

    def copy(self) -> Self:
        """An independent copy; plans are replaced, never changed."""
        return copy(self)

    def _with(self, station: int, user: int) -> Plan | None:
        """The plan that also serves this user, or None where that breaks a rule."""
        selected = self.selected
        selected[station, user] = True
        plan = self._observation.project(selected)
        whole = not plan.violators.any() and np.array_equal(plan.served, selected.any(axis=0))
        return plan if whole else None
