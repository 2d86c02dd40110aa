"""Exact optima for small instances: blocks of a given selection, and association with blocks and broadcasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, hstack, vstack

from covey.allocation.blocks import required_sinr, stations_of
from covey.allocation.groups import shareable_groups
from covey.arrays import BoolArray, FloatArray, IntArray
from covey.network.limits import RadioLimits

#: Default limit on groups of links (columns of the integer program).
MAX_GROUPS = 400_000


@dataclass(frozen=True)
class ExactSolution:
    """The best plan found and an upper bound on all plans.

    station, block: (U,), -1 for none; objective: total weight of the served users; bound: upper
    bound on the objective; status: `optimal`, or `limit` when the time limit was reached first.
    """

    station: IntArray
    block: IntArray
    objective: float
    bound: float
    status: Literal["optimal", "limit"]

    @property
    def gap(self) -> float:
        """Relative optimality gap, 0 when optimal."""
        return 0.0 if self.bound <= 0 else max(0.0, 1.0 - self.objective / self.bound)


def exact_blocks(
    gains: FloatArray,
    selected: BoolArray,
    weights: FloatArray,
    radio: RadioLimits,
    *,
    time_limit_s: float = 60.0,
    max_groups: int = MAX_GROUPS,
) -> ExactSolution:
    """The blocks that serve the largest total weight of an already chosen association; arguments as `assign_blocks`."""
    stations_of(selected)
    return _solve(
        gains,
        selected,
        weights,
        radio,
        identities=None,
        time_limit_s=time_limit_s,
        max_groups=max_groups,
    )


def exact_association(
    gains: FloatArray,
    identities: IntArray,
    capable: BoolArray,
    weights: FloatArray,
    radio: RadioLimits,
    *,
    available: BoolArray | None = None,
    time_limit_s: float = 60.0,
    max_groups: int = MAX_GROUPS,
) -> ExactSolution:
    """The association, blocks and broadcasts that together serve the largest total weight; ties to fewer broadcasts.

    gains: (U, B); identities: (U,) task of each user; capable: (B, K); weights: (U,) positive;
    available: (U,) users that may be served, by default all.
    """
    candidates = capable[:, identities]
    if available is not None:
        candidates = candidates & available
    return _solve(
        gains,
        candidates,
        weights,
        radio,
        identities=identities,
        time_limit_s=time_limit_s,
        max_groups=max_groups,
    )


def _solve(
    gains: FloatArray,
    candidates: BoolArray,
    weights: FloatArray,
    radio: RadioLimits,
    *,
    identities: IntArray | None,
    time_limit_s: float,
    max_groups: int,
) -> ExactSolution:
    """The integer program: choose at most R groups; a link is served if a chosen group contains it.

    Blocks are interchangeable, so a group needs no block number: no symmetry, and the relaxation is tight.
    Variables are the groups, then the links, then (with identities) the broadcasts.
    """
    users = len(gains)
    none = np.full(users, -1, dtype=np.int64)
    groups = shareable_groups(
        radio.power_w * gains,
        candidates,
        noise_w=radio.noise_w,
        min_sinr=required_sinr(radio.min_sinr),
        max_groups=max_groups,
    )
    at, who = np.nonzero(candidates)
    links = len(at)
    if links == 0:
        return ExactSolution(none, none.copy(), 0.0, 0.0, "optimal")
    number = np.full(candidates.shape, -1)
    number[at, who] = np.arange(links)
    group, station = np.nonzero(groups >= 0)
    covers = _ones(number[station, groups[group, station]], group, (links, len(groups)))
    one = csr_array(np.ones((1, len(groups))))
    per_user = _ones(who, np.arange(links), (users, links))

    rows = [hstack([covers, -_identity(links)]), _padded(one, 0, links), _padded(per_user, len(groups), 0)]
    lower = [np.zeros(links), np.array([-np.inf]), np.full(users, -np.inf)]
    upper = [np.full(links, np.inf), np.array([float(radio.blocks)]), np.ones(users)]
    cost = np.concatenate([np.zeros(len(groups)), -weights[who]])
    # All broadcasts together cost less than the smallest difference of integer weights: they only break ties.
    tie_cost = 0.5 * min(1.0, float(weights[who].min()))
    if identities is not None:
        pairs, pair = np.unique(at * (identities.max() + 1) + identities[who], return_inverse=True)
        sends = _ones(np.arange(links), pair, (links, len(pairs)))
        rows = [_padded(row, 0, len(pairs)) for row in rows]
        rows.append(_padded(hstack([-_identity(links), sends]), len(groups), 0))
        rows.append(_padded(csr_array(np.ones((1, len(pairs)))), len(groups) + links, 0))
        lower += [np.zeros(links), np.array([-np.inf])]
        upper += [np.full(links, np.inf), np.array([float(radio.downlink_slots)])]
        cost = np.concatenate([cost, np.full(len(pairs), tie_cost / (len(pairs) + 1))])
    # Given integral groups and broadcasts, the optimal links are integral too.
    integrality = np.ones(len(cost), dtype=np.int64)
    integrality[len(groups) : len(groups) + links] = 0
    result = milp(
        cost,
        integrality=integrality,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(vstack(rows).tocsc(), np.concatenate(lower), np.concatenate(upper)),
        options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
    )
    total = float(weights[np.unique(who)].sum())
    if result.x is None:
        return ExactSolution(none, none.copy(), 0.0, total, "limit")
    plan_station, plan_block = _decoded(result.x, groups, number, at, who, users)
    objective = float(weights[plan_station >= 0].sum())
    optimal = result.status == 0
    bound = objective if optimal else min(total, max(objective, tie_cost - float(result.mip_dual_bound)))
    return ExactSolution(plan_station, plan_block, objective, bound, "optimal" if optimal else "limit")


def _decoded(
    x: FloatArray, groups: IntArray, number: IntArray, at: IntArray, who: IntArray, users: int
) -> tuple[IntArray, IntArray]:
    """Station and block of each user from the solution; each link goes to the first chosen group that contains it."""
    station = np.full(users, -1, dtype=np.int64)
    block = np.full(users, -1, dtype=np.int64)
    strength = np.zeros(number.shape)
    strength[at, who] = x[len(groups) : len(groups) + len(at)]
    served = strength.sum(axis=0) > 0.5
    # A user may be split between equally good valid links: take the one of largest value.
    station[served] = strength.argmax(axis=0)[served]
    chosen = groups[x[: len(groups)] > 0.5]
    for n in reversed(range(len(chosen))):
        b = np.flatnonzero(chosen[n] >= 0)
        mine = b[station[chosen[n, b]] == b]
        block[chosen[n, mine]] = n
    return station, block


def _ones(row: IntArray, column: IntArray, shape: tuple[int, int]) -> csr_array:
    return csr_array((np.ones(len(row)), (row, column)), shape=shape)


def _identity(size: int) -> csr_array:
    return _ones(np.arange(size), np.arange(size), (size, size))


def _padded(matrix: csr_array, left: int, right: int) -> csr_array:
    """`matrix` with zero columns on both sides."""
    rows = matrix.shape[0]
    return csr_array(hstack([csr_array((rows, left)), matrix, csr_array((rows, right))]))
