"""Scores of pairs, and repair of selections that cannot be served completely."""

from __future__ import annotations

import numpy as np

from covey.arrays import BoolArray, FloatArray
from covey.network import Observation


def gain_shares(observation: Observation) -> FloatArray:
    """(B, U): each station's share of the user's total gain, near 1 where the user interferes with no other station."""
    total = observation.gains.sum(axis=1)
    shares = np.zeros((observation.gains.shape[1], len(total)))
    np.divide(observation.gains.T, total, out=shares, where=total > 0)
    return shares


def settled(observation: Observation, selected: BoolArray) -> BoolArray:
    """A selection (B, U) that the uplink serves completely, whichever station goes first.

    The uplink may miss an assignment that admission found: users that it does not serve are dropped, and the plan is
    filled up again if the larger selection can be served.
    """
    uplink = observation.uplink
    kept = uplink.survivors(observation, selected)
    if np.array_equal(kept, selected):
        return kept
    plan = uplink.admission(observation, kept)
    plan.fill(np.asarray(observation.samples * gain_shares(observation)))
    larger = uplink.survivors(observation, plan.selected)
    return max(kept, larger, key=lambda s: selected_samples(observation, s))


def selected_samples(observation: Observation, selected: BoolArray) -> float:
    """Total samples of the users in a selection (B, U)."""
    return float(observation.samples[selected.any(axis=0)].sum())
