"""Filling a plan in some order, and making sure that it survives the block matching."""

from __future__ import annotations

import numpy as np

from covey.allocation import admission_kernels as kernels
from covey.allocation.arrays import BoolArray, FloatArray, IntArray, dense
from covey.allocation.blocks import BlockAssignment, assign_blocks, blocks_of_many, required_sinr, stations_of
from covey.association.admission import Admission, descending
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
    plan.fill(score, reuse_bonus)
    return plan


def fill_many(
    scores: FloatArray,
    identities: IntArray,
    eligible: BoolArray,
    gains: FloatArray,
    *,
    blocks: int,
    downlink_slots: int,
    power_w: float,
    noise_w: float,
    min_sinr: float,
    minimum: float = -np.inf,
    first: FloatArray | None = None,
) -> BoolArray:
    """The users (N, B, U) that N empty plans admit, the highest of `scores` (N, B, U) first, as `fill` does.

    first: (N, B, U) scores by which one user of every task is admitted before all others, where given.

    identities: (N, U); eligible: (N, B, U) pairs that may be admitted; gains: (N, U, B); minimum: pairs that score
    no more than this are never admitted; the rest as in `Observation`.
    """
    scores, eligible = dense(scores, np.float64), dense(eligible, np.bool_)
    identities, gains = dense(identities, np.int64), np.asarray(gains)
    networks, stations, users = eligible.shape
    if not (scores.shape == eligible.shape and identities.shape == (networks, users)):
        raise ValueError(
            f"scores {scores.shape}, identities {identities.shape} and eligible {eligible.shape} do not fit together;"
            " they must be (N, B, U), (N, U) and (N, B, U)"
        )
    if gains.shape != (networks, users, stations):
        raise ValueError(f"gains {gains.shape} must be (N, U, B), here {(networks, users, stations)}")
    if identities.min(initial=0) < 0:
        raise ValueError("identities must be 0 or more; make users without a task ineligible and give them task 0")
    # What is never admitted goes to the end of the order, where the pass stops.
    flat = np.where(eligible, scores, -np.inf).reshape(networks, stations * users)
    if first is None:
        flat_first = np.zeros((0, stations * users))
    else:
        flat_first = np.where(eligible, dense(first, np.float64), -np.inf).reshape(networks, stations * users)
    return kernels.fill_all(
        flat_first,
        descending(flat_first),
        flat,
        descending(flat),
        identities,
        eligible,
        dense(power_w * gains, np.float64),
        int(identities.max(initial=0)) + 1,
        int(blocks),
        int(downlink_slots),
        float(noise_w),
        float(required_sinr(min_sinr)),
        float(minimum),
    )


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


def settle_many(
    selected: BoolArray,
    gains: FloatArray,
    samples: FloatArray | IntArray,
    *,
    blocks: int,
    power_w: float,
    noise_w: float,
    min_sinr: float,
) -> BoolArray:
    """The selections (N, B, U) without the users that the block matching does not serve, as `survivors` drops them.

    gains: (N, U, B); samples: (N, U); the rest as in `Observation`.
    """
    selected, gains = np.asarray(selected, dtype=np.bool_), np.asarray(gains)
    weights = np.asarray(samples, dtype=np.float64)
    if selected.ndim != 3 or gains.shape != (len(selected), *selected.shape[:0:-1]):
        raise ValueError(f"selected {selected.shape} and gains {gains.shape} must be (N, B, U) and (N, U, B)")
    station = stations_of(selected)
    unsettled = np.arange(len(station))
    while len(unsettled):
        block = blocks_of_many(
            station[unsettled],
            gains[unsettled],
            weights[unsettled],
            blocks=blocks,
            power_w=power_w,
            noise_w=noise_w,
            min_sinr=min_sinr,
        )
        lost = (station[unsettled] >= 0) & (block < 0)
        station[unsettled] = np.where(lost, -1, station[unsettled])
        unsettled = unsettled[lost.any(axis=1)]
    return np.asarray(selected & (station >= 0)[:, None, :])


def selected_samples(observation: Observation, selected: BoolArray) -> float:
    """Samples of the users that a selection (B, U) names."""
    return float(observation.samples[selected.any(axis=0)].sum())
