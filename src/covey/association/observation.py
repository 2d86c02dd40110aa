"""What a policy sees and what it must answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from covey.allocation.arrays import BoolArray, FloatArray, IntArray
from covey.allocation.projection import Plan, project
from covey.errors import PolicyError


@dataclass(frozen=True)
class Observation:
    """The state of the network when the stations choose their users.

    identities: (U,) announced tasks; distances_m, gains: (U, B); samples: (U,); capable: (B, K) tasks
    of each station; blocks: R; downlink_slots: (station, task) broadcasts that fit into a round;
    power_w, noise_w: transmit power of a user and noise in a block; min_sinr: SINR floor (linear);
    available: (U,), False for users that sit out; kept: (U,), users that announced the same task in the last round.
    """

    round: int
    identities: IntArray
    distances_m: FloatArray
    gains: FloatArray
    samples: IntArray | FloatArray
    capable: BoolArray
    blocks: int
    downlink_slots: int
    power_w: float
    noise_w: float
    min_sinr: float
    available: BoolArray
    kept: BoolArray | None = None

    @property
    def eligible(self) -> BoolArray:
        """(B, U): users that are available and whose task the station can run."""
        return np.asarray(self.capable[:, self.identities] & self.available)

    def project(self, selected: BoolArray) -> Plan:
        """The plan that is left of a selection (B, U) when nothing may break a rule; stations go first in turn."""
        return project(
            selected,
            self.identities,
            self.capable,
            self.gains,
            self.samples,
            blocks=self.blocks,
            downlink_slots=self.downlink_slots,
            power_w=self.power_w,
            noise_w=self.noise_w,
            min_sinr=self.min_sinr,
            first_station=self.round % len(self.capable),
        )


#: A policy: what the stations see and a random generator in, the users that each station selects (B, U) out.
Policy = Callable[[Observation, np.random.Generator], BoolArray]


def validated_selection(answer: object, users: int, stations: int) -> BoolArray:
    """A policy's answer as a (B, U) bool array, or a PolicyError that says what is wrong with it."""
    try:
        selected = np.asarray(answer)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"the policy's answer is not an array: {error}") from error
    if selected.shape != (stations, users):
        raise PolicyError(
            f"the policy answered with the shape {selected.shape}; it must be ({stations}, {users}):"
            " one row per station, one column per user"
        )
    if selected.dtype == np.bool_:
        return selected.copy()
    if not (np.issubdtype(selected.dtype, np.number) and np.all((selected == 0) | (selected == 1))):
        raise PolicyError("the policy's answer may hold only True and False (or 1 and 0): selected or not")
    return np.asarray(selected == 1)
