"""From what the stations ask for to what can be done: violating selections are projected out and counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from covey.allocation.arrays import BoolArray, FloatArray, IntArray
from covey.allocation.blocks import assign_blocks

#: Ways in which a selection can break the rules, in the order in which they are projected out (errata E34).
VIOLATION_KINDS = ("unable", "beyond_blocks", "selected_twice", "no_block", "no_broadcast")


@dataclass(frozen=True)
class Plan:
    """Who is served where and on which block, and who broke which rule on the way.

    station, block: (U,), -1 for users that are not served; active: (B, K) broadcasts;
    violators: (U,) users that broke any rule (one selected twice may still be served);
    kinds: for each of VIOLATION_KINDS the users (U,) that broke this rule;
    station_violations: (B,) violators charged to each station, summing to the number of violators.
    """

    station: IntArray
    block: IntArray
    active: BoolArray
    violators: BoolArray
    kinds: Mapping[str, BoolArray]
    station_violations: FloatArray

    @property
    def served(self) -> BoolArray:
        """Users that upload in this round, (U,)."""
        return self.station >= 0


def project(
    selected: BoolArray,
    identities: IntArray,
    capable: BoolArray,
    gains: FloatArray,
    samples: FloatArray | IntArray,
    *,
    blocks: int,
    downlink_slots: int,
    power_w: float,
    noise_w: float,
    min_sinr: float,
    first_station: int = 0,
) -> Plan:
    """The valid plan left of a selection (B, U), and its violations.

    identities: (U,) task of each user; capable: (B, K) tasks of each station; gains: (U, B);
    samples: (U,) weights of the block matching and of the broadcasts; downlink_slots: (station, task)
    broadcasts that fit into a round; the rest as in `assign_blocks`.

    In this order: users whose task the station cannot run are dropped; users beyond the first R of a
    station, by number, are dropped; a user selected twice stays with the suitor of largest gain; users
    without a block are dropped; (station, task) broadcasts are sorted by their samples and those that do
    not fit are dropped with their users.
    """
    wanted = np.asarray(selected, dtype=bool)
    weights = np.asarray(samples, dtype=np.float64)
    charged: dict[str, BoolArray] = {}

    known = (identities >= 0) & (identities < capable.shape[1])
    able = capable[:, np.where(known, identities, 0)] & known
    charged["unable"] = wanted & ~able
    wanted = wanted & able

    charged["beyond_blocks"] = wanted & (np.cumsum(wanted, axis=1) > blocks)
    wanted = wanted & ~charged["beyond_blocks"]

    charged["selected_twice"] = wanted & (wanted.sum(axis=0) > 1)
    favourite = np.where(wanted, gains.T, -np.inf).argmax(axis=0)
    wanted = wanted & (np.arange(len(wanted))[:, None] == favourite)

    granted = assign_blocks(
        gains,
        wanted,
        weights,
        blocks=blocks,
        power_w=power_w,
        noise_w=noise_w,
        min_sinr=min_sinr,
        first_station=first_station,
    )
    charged["no_block"] = wanted & (granted.block < 0)
    wanted = wanted & (granted.block >= 0)

    active = _broadcasts(wanted, identities, weights, capable.shape, downlink_slots)
    heard = wanted & active[:, np.where(known, identities, 0)]
    charged["no_broadcast"] = wanted & ~heard

    served = heard.any(axis=0)
    involved = np.any(list(charged.values()), axis=0)
    violators = involved.any(axis=0)
    # A violation that involves several stations is split equally between them: errata E40.
    shares = involved / np.maximum(involved.sum(axis=0), 1)
    return Plan(
        station=np.where(served, granted.station, -1),
        block=np.where(served, granted.block, -1),
        active=active,
        violators=violators,
        kinds={kind: np.asarray(charged[kind].any(axis=0)) for kind in VIOLATION_KINDS},
        station_violations=np.asarray(shares.sum(axis=1), dtype=np.float64),
    )


def _broadcasts(
    wanted: BoolArray, identities: IntArray, weights: FloatArray, shape: tuple[int, ...], slots: int
) -> BoolArray:
    """The (station, task) broadcasts (B, K) of most samples, at most `slots`; ties to the lower station, then task."""
    station, user = np.nonzero(wanted)
    total = np.zeros(shape)
    np.add.at(total, (station, identities[user]), weights[user])
    order = np.argsort(-total, axis=None, kind="stable")[: max(slots, 0)]
    active = np.zeros(total.size, dtype=bool)
    active[order] = True
    return active.reshape(shape) & (total > 0)
