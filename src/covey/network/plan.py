"""A plan: which users are served where, and which constraints the selection violated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray

#: Kinds of constraint violation, in the order in which they are projected out (errata E34). Records hold them as flags
#: 1, 2, 4, ... in this order.
VIOLATION_KINDS = ("unable", "beyond_blocks", "selected_twice", "no_block", "no_broadcast")


@dataclass(frozen=True)
class Plan:
    """Station and block of every user, and the violations of the selection; of one network or of a batch.

    station, block: (..., U), -1 for users that are not served; active: (..., B, K) broadcasts;
    violators: (..., U) users with any violation (one selected twice may still be served);
    kinds: for each of VIOLATION_KINDS the users (..., U) with this violation;
    station_violations: (..., B) violators charged to each station, summing to the number of violators.
    """

    station: IntArray
    block: IntArray
    active: BoolArray
    violators: BoolArray
    kinds: Mapping[str, BoolArray]
    station_violations: FloatArray

    @property
    def served(self) -> BoolArray:
        """Users that upload in this round, (..., U)."""
        return self.station >= 0

    @classmethod
    def stack(cls, plans: Sequence[Plan]) -> Self:
        """Several plans as one batch."""
        return cls(
            station=np.stack([plan.station for plan in plans]),
            block=np.stack([plan.block for plan in plans]),
            active=np.stack([plan.active for plan in plans]),
            violators=np.stack([plan.violators for plan in plans]),
            kinds={kind: np.stack([plan.kinds[kind] for plan in plans]) for kind in VIOLATION_KINDS},
            station_violations=np.stack([plan.station_violations for plan in plans]),
        )
