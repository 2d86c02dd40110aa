"""The state that stations observe before they select users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray, dense, joined, parted
from covey.compiled import compiled
from covey.network.limits import NetworkLimits
from covey.network.plan import Plan

if TYPE_CHECKING:
    from covey.uplink.protocol import Uplink

#: The fields with one entry per network.
_ARRAYS = ("identities", "distances_m", "gains", "samples", "available", "kept")


@dataclass(frozen=True)
class Observation:
    """The state of a network, or of a batch of networks in the same round, when the stations choose their users.

    identities: (..., U) announced tasks; distances_m, gains: (..., U, B), gains linear; samples: (..., U); available:
    (..., U), False for users that sit out; kept: (..., U), users that announced the same task in the last round;
    limits: constants. A policy sees one network, without leading axes.
    """

    round: int
    identities: IntArray
    distances_m: FloatArray
    gains: FloatArray
    samples: IntArray
    available: BoolArray
    kept: BoolArray
    limits: NetworkLimits

    @classmethod
    def stack(cls, observations: Sequence[Observation]) -> Self:
        """Several networks of the same limits in the same round as one batch."""
        first = observations[0]
        if any(other.round != first.round for other in observations):
            raise ValueError("the observations are of different rounds; a batch plays one round together")
        arrays = {name: np.stack([getattr(other, name) for other in observations]) for name in _ARRAYS}
        return cls(round=first.round, limits=first.limits, **arrays)

    def __getitem__(self, index: int | slice) -> Observation:
        """Network `index` of a batch, or a part of the batch."""
        if not self.leading:
            raise IndexError("this is one network, not a batch of them")
        return replace(self, **{name: getattr(self, name)[index] for name in _ARRAYS})

    @property
    def leading(self) -> tuple[int, ...]:
        """The leading axes: () for one network, (N,) for a batch of N."""
        return self.identities.shape[:-1]

    def as_batch(self) -> Observation:
        """The same with exactly one leading axis, (N, ...)."""
        if len(self.leading) == 1:
            return self
        axes = len(self.leading)
        count = int(np.prod(self.leading))
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return replace(self, **{name: array.reshape(count, *array.shape[axes:]) for name, array in arrays.items()})

    @property
    def capable(self) -> BoolArray:
        """(B, K): tasks of each station."""
        return self.limits.capable

    @property
    def blocks(self) -> int:
        """Resource blocks of every station, R."""
        return self.limits.radio.blocks

    @property
    def downlink_slots(self) -> int:
        """(station, task) broadcasts that fit into a round, of all stations together."""
        return self.limits.radio.downlink_slots

    @property
    def power_w(self) -> float:
        """Transmit power of a user in watts."""
        return self.limits.radio.power_w

    @property
    def noise_w(self) -> float:
        """Receiver noise in one block in watts."""
        return self.limits.radio.noise_w

    @property
    def min_sinr(self) -> float:
        """The SINR (linear) at which a block carries the rate floor."""
        return self.limits.radio.min_sinr

    @property
    def uplink(self) -> Uplink:
        """Which users can be served together, and at which rates."""
        return self.limits.uplink

    @property
    def first_station(self) -> int:
        """The station whose turn it is to go first; it rotates from round to round."""
        return self.round % self.limits.stations

    @property
    def turns(self) -> IntArray:
        """(B,): the place of each station in this round's order, which rotates as in the block matching."""
        return np.asarray((np.arange(self.limits.stations) - self.round) % self.limits.stations)

    @property
    def eligible(self) -> BoolArray:
        """(..., B, U): users that are available and whose task the station can run."""
        if self.available.shape != self.identities.shape:
            raise ValueError(
                f"identities {self.identities.shape} and available {self.available.shape} do not fit together; both"
                " must be (..., U)"
            )
        capable = dense(self.capable, np.bool_)
        found = _eligible(capable, joined(self.identities, np.int64, 1), joined(self.available, np.bool_, 1))
        return parted(found, self.leading)

    @property
    def reachable(self) -> BoolArray:
        """(..., B, U): eligible users that would reach the station at the rate floor if nobody else sent."""
        alone = self.gains * self.power_w >= self.min_sinr * self.noise_w
        return np.asarray(self.eligible & np.swapaxes(alone, -1, -2))

    @property
    def owned(self) -> BoolArray:
        """(..., B, U): eligible users whose task belongs to the station in this round.

        Every task belongs to one of the stations that can run it, in rotation; all stations know the order, so that
        stations that follow it never select the same user, without any communication.
        """
        stations = self.limits.stations
        owner = np.where(self.capable, self.turns[:, None], stations).argmin(axis=0)  # (K,)
        mine = owner[self.identities][..., None, :] == np.arange(stations)[:, None]
        return np.asarray(mine & self.eligible)

    def project(self, selected: BoolArray) -> Plan:
        """The valid plan that remains of a selection (..., B, U); the starting station rotates over rounds."""
        return self.uplink.projected(self, selected)


@compiled
def _eligible(capable: BoolArray, identities: IntArray, available: BoolArray) -> BoolArray:
    """(N, B, U), from capable: (B, K), identities and available: (N, U)."""
    networks, users = identities.shape
    stations, tasks = capable.shape
    found = np.empty((networks, stations, users), dtype=np.bool_)
    for n in range(networks):
        for b in range(stations):
            for i in range(users):
                task = identities[n, i]
                if not 0 <= task < tasks:
                    raise IndexError("a user's task is beyond the last; number them from 0")
                found[n, b, i] = available[n, i] and capable[b, task]
    return found
