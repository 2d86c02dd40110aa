"""Simple reference policies: random, nearest and greedy."""

from __future__ import annotations

import numpy as np

from covey.arrays import BoolArray
from covey.association.filling import gain_shares, settled
from covey.network import Observation
from covey.uplink import Admission

#: Orders that greedy tries: exponent of the gain share, and bonus of a broadcast that is already in use. The first
#: takes the largest users first; the second, chosen by measurement, prefers users that interfere with few stations.
_ORDERS = ((0.0, 0.0), (0.5, 0.25))


def random(observation: Observation, rng: np.random.Generator) -> BoolArray:
    """A random valid selection (B, U): random pairs admitted until no more fit."""
    plan = observation.uplink.admission(observation)
    while True:
        pairs = np.argwhere(plan.candidates())
        if len(pairs) == 0:
            return observation.uplink.survivors(observation, plan.selected)
        station, user = pairs[rng.integers(len(pairs))]
        plan.admit(int(station), int(user))


def nearest(observation: Observation, rng: np.random.Generator) -> BoolArray:
    """Every user's nearest capable station selects it if it is among that station's R nearest, (B, U).

    Nobody coordinates: blocks may not suffice and broadcasts may not fit, so the selection may break rules.
    """
    eligible = observation.eligible
    distance_m = np.where(eligible, observation.distances_m.T, np.inf)
    own = eligible & (np.arange(len(eligible))[:, None] == distance_m.argmin(axis=0))
    order = np.argsort(np.where(own, distance_m, np.inf), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None, :], axis=1)
    return np.asarray(own & (rank < observation.blocks))


def greedy(observation: Observation, rng: np.random.Generator) -> BoolArray:
    """Pairs admitted in a good order while the selection (B, U) stays valid; the better of two orders."""
    return settled(observation, greedy_plan(observation).selected)


def greedy_plan(observation: Observation) -> Admission:
    """The plan behind `greedy`, before block matching."""
    shares = gain_shares(observation)
    plans = [observation.uplink.admission(observation) for _ in _ORDERS]
    for plan, (power, bonus) in zip(plans, _ORDERS, strict=True):
        # The small term breaks ties in favour of the user's strongest station.
        plan.fill(observation.samples * (shares**power + 1e-6 * shares), bonus)
    return max(plans, key=lambda plan: plan.value)


def coverage(observation: Observation, rng: np.random.Generator) -> BoolArray:
    """One user for every announced task, (B, U): the pair of most samples times gain share, large tasks first.

    Every model moves in every round while as few users as possible leak; a frugal counterpart of `greedy`.
    """
    plan = observation.uplink.admission(observation)
    score = np.asarray(observation.samples * gain_shares(observation))
    tasks = observation.capable.shape[1]
    held = np.bincount(observation.identities, weights=observation.samples, minlength=tasks)
    for task in np.argsort(-held, kind="stable"):
        candidates = plan.candidates() & (observation.identities == task)
        if candidates.any():
            station, user = np.unravel_index(np.where(candidates, score, -np.inf).argmax(), score.shape)
            plan.admit(int(station), int(user))
    return observation.uplink.survivors(observation, plan.selected)
