"""Local search by destroy and repair: drop a few related users, refill in another order, keep plans no worse."""

from __future__ import annotations

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray
from covey.association.filling import gain_shares, selected_samples, settled
from covey.association.policies import greedy_plan
from covey.network import Observation
from covey.uplink import Admission

#: Maximum steps, and steps without gain before stopping. Counted, not timed, so that results are reproducible.
_STEPS = 600
_PATIENCE = 200
#: Maximum users dropped in one step.
_DROPS = 6
#: Number of latest improvements that are tried in block matching.
_SETTLED = 3
_GAIN_POWERS = (0.0, 0.25, 0.5, 1.0)
_REUSE_BONUSES = (0.0, 0.25, 0.5)


def local_search(observation: Observation, rng: np.random.Generator) -> BoolArray:
    """A valid selection (B, U) that no further step improved: greedy, then add, drop, swap and move users.

    A step drops up to six users that share a block, a station or a broadcast, or any, and admits users in a
    randomly changed order until none fits: that moves, swaps and adds users at once. A step that serves at least
    as many samples, with at most as many broadcasts where equal, is kept.
    """
    plan = greedy_plan(observation)
    improvements = [plan]
    shares = gain_shares(observation)
    idle = 0
    for _ in range(_STEPS):
        if idle == _PATIENCE or not np.any(plan.station >= 0):
            break
        trial = plan.copy()
        for user in _related(plan, observation.identities, rng):
            trial.remove(int(user))
        trial.fill(_random_order(observation, shares, rng), float(rng.choice(_REUSE_BONUSES)))
        if trial.value > plan.value:
            improvements.append(trial)
            idle = 0
        else:
            idle += 1
        if trial.value >= plan.value:
            plan = trial
    return _best_settled(observation, improvements)


def _best_settled(observation: Observation, improvements: list[Admission]) -> BoolArray:
    """The best selection after block matching, of the last improvements and the first plan."""
    best = np.zeros(observation.eligible.shape, dtype=bool)
    for plan in (*improvements[: -_SETTLED - 1 : -1], improvements[0]):
        if plan.served_samples <= selected_samples(observation, best):
            break
        best = max(best, settled(observation, plan.selected), key=lambda s: selected_samples(observation, s))
    return best


def _related(plan: Admission, identities: IntArray, rng: np.random.Generator) -> IntArray:
    """Served users to drop: a random subset of all, of one block or of one station; or all of one broadcast."""
    served = np.flatnonzero(plan.station >= 0)
    one = rng.choice(served)
    relation = rng.integers(4)
    if relation == 0:
        pool = served
    elif relation == 1:
        pool = served[plan.block[served] == plan.block[one]]
    else:
        pool = served[plan.station[served] == plan.station[one]]
    if relation == 3:
        return np.asarray(pool[identities[pool] == identities[one]])
    return rng.permutation(pool)[: rng.integers(1, _DROPS + 1)]


def _random_order(observation: Observation, shares: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.asarray(observation.samples * shares ** rng.choice(_GAIN_POWERS) * rng.uniform(0.5, 1.5, shares.shape))
