"""Compiled admission kernels: grow valid plans user by user, for one network or a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray
from covey.compiled import compiled


class PartialPlan(NamedTuple):
    """A valid partial plan; the first four arrays are constant.

    identities: (U,); eligible: (B, U); received_w: (U, B); bearable_w: (U, B) interference that each user
    tolerates at each station; station, block: (U,); members: (B, K); holder: (B, R) user of each block of each station;
    interference_w: (R, B) from the holders of the block; slack_w: (R, B) further interference that the
    holder tolerates.
    """

    identities: IntArray
    eligible: BoolArray
    received_w: FloatArray
    bearable_w: FloatArray
    station: IntArray
    block: IntArray
    members: IntArray
    holder: IntArray
    interference_w: FloatArray
    slack_w: FloatArray


@compiled
def empty_plan(
    identities: IntArray,
    eligible: BoolArray,
    received_w: FloatArray,
    tasks: int,
    blocks: int,
    noise_w: float,
    floor: float,
) -> PartialPlan:
    """An empty plan."""
    stations, users = eligible.shape
    return PartialPlan(
        identities,
        eligible,
        received_w,
        received_w / floor - noise_w,
        np.full(users, -1),
        np.full(users, -1),
        np.zeros((stations, tasks), dtype=np.int64),
        np.full((stations, blocks), -1),
        np.zeros((blocks, stations)),
        np.full((blocks, stations), np.inf),
    )


@compiled
def refresh(plan: PartialPlan, n: int) -> None:
    """Recompute the interference in block n, from its holders alone, so that rounding errors do not accumulate."""
    stations = len(plan.holder)
    for p in range(stations):
        plan.interference_w[n, p] = 0.0
    for q in range(stations):
        if plan.holder[q, n] >= 0:
            for p in range(stations):
                if p != q:
                    plan.interference_w[n, p] += plan.received_w[plan.holder[q, n], p]
    for p in range(stations):
        i = plan.holder[p, n]
        plan.slack_w[n, p] = plan.bearable_w[i, p] - plan.interference_w[n, p] if i >= 0 else np.inf


@compiled
def _fits(plan: PartialPlan, b: int, i: int, n: int) -> bool:
    """Whether user i can take block n of station b: it is free, and every link on it keeps the SINR floor."""
    if plan.holder[b, n] >= 0:
        return False
    fine: bool = plan.interference_w[n, b] <= plan.bearable_w[i, b]
    for p in range(len(plan.holder)):
        fine &= plan.received_w[i, p] <= plan.slack_w[n, p]
    return fine


@compiled
def _broadcasts_in_use(plan: PartialPlan) -> int:
    used = 0
    for count in plan.members.flat:
        if count > 0:
            used += 1
    return used


@compiled
def admit(plan: PartialPlan, b: int, i: int) -> bool:
    """Serve user i at station b on the feasible block with the most holders; False if there is none."""
    stations, blocks = plan.holder.shape
    block, most = -1, -1
    for n in range(blocks):
        if _fits(plan, b, i, n):
            used = 0
            for p in range(stations):
                used += plan.holder[p, n] >= 0
            if used > most:
                block, most = n, used
    if block < 0:
        return False
    plan.station[i] = b
    plan.block[i] = block
    plan.members[b, plan.identities[i]] += 1
    plan.holder[b, block] = i
    refresh(plan, block)
    return True


@compiled
def _has_block(plan: PartialPlan, b: int, i: int) -> bool:
    for n in range(plan.holder.shape[1]):  # noqa: SIM110, generators are not compiled
        if _fits(plan, b, i, n):
            return True
    return False


@compiled
def candidates(plan: PartialPlan, slots: int) -> BoolArray:
    """(B, U): pairs that can be admitted now without breaking any rule."""
    full = _broadcasts_in_use(plan) >= slots
    possible = np.zeros(plan.eligible.shape, dtype=np.bool_)
    for b in range(len(plan.holder)):
        for i in range(len(plan.station)):
            if plan.eligible[b, i] and plan.station[i] < 0:
                starts = plan.members[b, plan.identities[i]] == 0
                possible[b, i] = not (starts and full) and _has_block(plan, b, i)
    return possible


@compiled
def fill_in_order(plan: PartialPlan, slots: int, score: FloatArray, order: IntArray, minimum: float) -> None:
    """Admit pairs in this order (B U,) of descending `score` (B U,), while it is above `minimum`.

    One pass is enough: interference and broadcasts only grow with the plan, so that a rejected pair never becomes a
    candidate again.
    """
    users = len(plan.station)
    broadcasts = _broadcasts_in_use(plan)
    for pair in order:
        if not score[pair] > minimum:
            break
        b, i = pair // users, pair % users
        if plan.eligible[b, i] and plan.station[i] < 0:
            starts = plan.members[b, plan.identities[i]] == 0
            if not (starts and broadcasts >= slots) and admit(plan, b, i):
                broadcasts += starts


@compiled
def cover_in_order(plan: PartialPlan, slots: int, score: FloatArray, order: IntArray, minimum: float) -> None:
    """Like `fill_in_order`, but only one user of every task is admitted."""
    users = len(plan.station)
    broadcasts = _broadcasts_in_use(plan)
    covered = np.zeros(plan.members.shape[1], dtype=np.bool_)
    for pair in order:
        if not score[pair] > minimum:
            break
        b, i = pair // users, pair % users
        task = plan.identities[i]
        if plan.eligible[b, i] and plan.station[i] < 0 and not covered[task] and broadcasts < slots:
            covered[task] = admit(plan, b, i)
            broadcasts += covered[task]


@compiled
def fill_with_bonus(plan: PartialPlan, slots: int, score: FloatArray, reuse_bonus: float) -> None:
    """Admit the candidate of highest `score` (B, U) until none is left; ties by station, then user.

    reuse_bonus: relative bonus of pairs whose broadcast is already in use.
    """
    identities, eligible, station, members = plan.identities, plan.eligible, plan.station, plan.members
    stations, users = eligible.shape
    broadcasts = _broadcasts_in_use(plan)
    # The pairs that may still be candidates.
    left_station = np.arange(stations * users) // users
    left_user = np.arange(stations * users) % users
    left = stations * users
    while True:
        best, chosen_station, chosen_user, kept = -np.inf, -1, -1, 0
        for place in range(left):
            b, i = left_station[place], left_user[place]
            starts = members[b, identities[i]] == 0
            # A pair that is not a candidate now never will be; only the best so far is tested for a block.
            if not eligible[b, i] or station[i] >= 0 or (starts and broadcasts >= slots):
                continue
            worth = score[b, i] if starts else score[b, i] * (1.0 + reuse_bonus)
            if worth > best:
                if not _has_block(plan, b, i):
                    continue
                best, chosen_station, chosen_user = worth, b, i
            left_station[kept], left_user[kept] = b, i
            kept += 1
        if chosen_user < 0:
            break
        left = kept
        broadcasts += members[chosen_station, identities[chosen_user]] == 0
        admit(plan, chosen_station, chosen_user)


@compiled
def fill_all(
    first: FloatArray,
    first_order: IntArray,
    score: FloatArray,
    order: IntArray,
    identities: IntArray,
    eligible: BoolArray,
    received_w: FloatArray,
    tasks: int,
    blocks: int,
    slots: int,
    noise_w: float,
    floor: float,
    minimum: float,
) -> BoolArray:
    """The users (N, B, U) admitted to N empty plans by `cover_in_order`, then `fill_in_order`.

    first, first_order: (N, B U), or (0, B U) to skip the first pass; score, order: (N, B U); identities: (N, U);
    eligible: (N, B, U); received_w: (N, U, B).
    """
    selected = np.zeros(eligible.shape, dtype=np.bool_)
    for network in range(len(eligible)):
        plan = empty_plan(identities[network], eligible[network], received_w[network], tasks, blocks, noise_w, floor)
        if len(first) > 0:
            cover_in_order(plan, slots, first[network], first_order[network], minimum)
        fill_in_order(plan, slots, score[network], order[network], minimum)
        for i in range(len(plan.station)):
            if plan.station[i] >= 0:
                selected[network, plan.station[i], i] = True
    return selected
