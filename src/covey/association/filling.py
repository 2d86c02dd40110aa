"""Filling a plan in some order, and making sure that it survives the block matching."""

from __future__ import annotations

import numpy as np

from covey.allocation.arrays import BoolArray, FloatArray
from covey.allocation.blocks import BlockAssignment, assign_blocks
from covey.association.admission import Admission
from covey.association.observation import Observation


def gain_shares(observation: Observation) -> FloatArray:
    """(B, U): each station's share of the user's total gain, near 1 where the user disturbs no other station."""
    total = observation.gains.sum(axis=1)
    shares = np.zeros((observation.gains.shape[1], len(total)))
    np.divide(observation.gains.T, total, out=shares, where=total > 0)
    return shares


def fill(plan: Admission, observation: Observation, score: FloatArray, reuse_bonus: float = 0.0) -> Admission:
    """Admit candidates to `plan`, the highest `score` (B, U) first, until none is left; returns `plan`.

    reuse_bonus: relative bonus of pairs whose broadcast is already in use, which cost no downlink slot.
    """
    while True:
        candidates = plan.candidates()
        if not candidates.any():
            return plan
        in_use = plan.members[:, observation.identities] > 0
        now = np.where(candidates, score * (1.0 + reuse_bonus * in_use), -np.inf)
        station, user = np.unravel_index(now.argmax(), now.shape)
        plan.admit(int(station), int(user))


def settled(observation: Observation, selected: BoolArray) -> BoolArray:
    """A selection (B, U) of which the block matching serves everybody, whichever station comes first.

    The matching may miss an arrangement that admission found: users that it leaves out are dropped, and the
    others' actual blocks are filled up again if the larger selection holds.
    """
    kept, matching = survivors(observation, selected)
    if np.array_equal(kept, selected):
        return kept
    plan = Admission.of_plan(observation, matching.station, matching.block)
    fill(plan, observation, np.asarray(observation.samples * gain_shares(observation)))
    larger, _ = survivors(observation, plan.selected)
    return max(kept, larger, key=lambda s: selected_samples(observation, s))


def survivors(observation: Observation, selected: BoolArray) -> tuple[BoolArray, BlockAssignment]:
    """The selection (B, U) without the users that the block matching does not serve, and the matching of the rest."""
    while True:
        # All first stations are tried inside, so that serving everybody does not depend on who comes first.
        matching = assign_blocks(
            observation.gains,
            selected,
            observation.samples,
            blocks=observation.blocks,
            power_w=observation.power_w,
            noise_w=observation.noise_w,
            min_sinr=observation.min_sinr,
        )
        served = selected & (matching.block >= 0)
        if np.array_equal(served, selected):
            return selected, matching
        selected = served


def selected_samples(observation: Observation, selected: BoolArray) -> float:
    """Samples of the users that a selection (B, U) names."""
    return float(observation.samples[selected.any(axis=0)].sum())
