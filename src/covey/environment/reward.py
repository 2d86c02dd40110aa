"""The reward (27), its components, and the stations' shares of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray, dense
from covey.compiled import compiled
from covey.network import Plan
from covey.scenario.schema import Reward

Penalty = Literal["progressive", "fixed"]

#: The fixed penalty of any violation, in units of the progressive one.
FIXED_UNITS = 5.0


@dataclass(frozen=True)
class Outcome:
    """Outcome of one round in N networks.

    station, block: (N, U), -1 for users that are not served; active: (N, B, K) broadcasts; violators: (N, U);
    kinds: violations by kind, (N, U) each; station_violations: (N, B); noise_std: (N, U); loss_before, loss: (N, U)
    mean loss of each user on its task's model before and after the round; leakage: (N, U) 1 / (X_i std_i)^2.
    """

    station: IntArray
    block: IntArray
    active: BoolArray
    violators: BoolArray
    kinds: Mapping[str, BoolArray]
    station_violations: FloatArray
    noise_std: FloatArray
    loss_before: FloatArray
    loss: FloatArray
    leakage: FloatArray

    @classmethod
    def of(
        cls, plan: Plan, *, noise_std: FloatArray, loss_before: FloatArray, loss: FloatArray, leakage: FloatArray
    ) -> Self:
        """What a round did in which this plan of N networks was played; the other arrays are (N, U)."""
        return cls(
            plan.station, plan.block, plan.active, plan.violators, plan.kinds, plan.station_violations,
            noise_std=noise_std, loss_before=loss_before, loss=loss, leakage=leakage,
        )  # fmt: skip

    @property
    def served(self) -> IntArray:
        """Served users of each network, (N,)."""
        return np.asarray((self.station >= 0).sum(axis=1))


@dataclass(frozen=True)
class Rewards:
    """The reward of one round in N networks, and its components.

    team: (N,) reward (27); without_penalty: (N,); penalty: (N,) positive; stations: (N, B), summing to `team`;
    cost_before, cost: (N,) summed losses per user before and after; leakage_cost: (N,) priced leakage per user;
    violators: (N,); station_violations: (N, B).
    """

    team: FloatArray
    without_penalty: FloatArray
    penalty: FloatArray
    stations: FloatArray
    cost_before: FloatArray
    cost: FloatArray
    leakage_cost: FloatArray
    violators: FloatArray
    station_violations: FloatArray


def rewards(outcome: Outcome, samples: IntArray, weights: Reward, penalty: Penalty = "progressive") -> Rewards:
    """The rewards of a round; samples: (N, U).

    The team reward is Eq. (27) on the models after aggregation (errata E7). A station's share is made of the losses
    and leakage of the users it served, an equal part of the losses of unserved users, and the penalty in
    proportion to the violations charged to it, so that the shares sum to the team reward (errata E40).
    """
    of_users = (outcome.loss_before, outcome.loss, outcome.leakage, outcome.violators, outcome.station)
    if any(values.shape != samples.shape for values in of_users):
        shapes = {values.shape for values in of_users}
        raise ValueError(f"samples are {samples.shape} and the outcome's users {shapes}; all must be (N, U)")
    stations = outcome.station_violations.shape[1]
    parts, own, violators = _parts(
        dense(samples, np.float64),
        dense(outcome.loss_before, np.float64),
        dense(outcome.loss, np.float64),
        dense(outcome.leakage, np.float64),
        dense(outcome.station, np.int64),
        dense(outcome.violators, np.bool_),
        stations,
        weights.leakage_weight,
    )
    cost_before, cost, leakage_cost, both, nobody = parts.sum(axis=2)
    size = penalty_of(violators, weights.penalty, penalty)
    taken = np.einsum("nbu,nu->nb", own, parts[3])
    shares = _shares(taken, nobody, size, dense(outcome.station_violations, np.float64), violators)
    without_penalty = -both
    return Rewards(
        team=without_penalty - size,
        without_penalty=without_penalty,
        penalty=size,
        stations=shares,
        cost_before=cost_before / samples.shape[1],
        cost=cost,
        leakage_cost=leakage_cost,
        violators=violators,
        station_violations=outcome.station_violations,
    )


@compiled
def _parts(
    samples: FloatArray,
    loss_before: FloatArray,
    loss: FloatArray,
    leakage: FloatArray,
    station: IntArray,
    violators: BoolArray,
    stations: int,
    leakage_weight: float,
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Summands of the rewards, (5, N, U); association, (N, B, U); number of violators, (N,).

    The summands: losses before the round, not divided by U; losses and priced leakage, divided by U; the sum of these
    two; and the losses of unserved users.
    """
    networks, users = samples.shape
    parts, own = np.zeros((5, networks, users)), np.zeros((networks, stations, users), dtype=np.bool_)
    number = np.zeros(networks)
    for n in range(networks):
        for i in range(users):
            cost = samples[n, i] * loss[n, i] / users
            priced = leakage_weight * leakage[n, i] / users
            parts[0, n, i] = samples[n, i] * loss_before[n, i]
            parts[1, n, i] = cost
            parts[2, n, i] = priced
            parts[3, n, i] = cost + priced
            if station[n, i] < 0:
                parts[4, n, i] = cost
            elif station[n, i] < stations:
                own[n, station[n, i], i] = True
            number[n] += violators[n, i]
    return parts, own, number


@compiled
def _shares(
    taken: FloatArray, nobody: FloatArray, size: FloatArray, violations: FloatArray, violators: FloatArray
) -> FloatArray:
    """The stations' shares (N, B), from the losses and leakage of each station's users and its violations, (N, B), and
    from the losses of unserved users, the penalty and the violators, (N,)."""
    networks, stations = taken.shape
    shares = np.empty((networks, stations))
    for n in range(networks):
        for b in range(stations):
            share = violations[n, b] / max(violators[n], 1.0)
            shares[n, b] = -taken[n, b] - nobody[n] / stations - size[n] * share
    return shares


def penalty_of(violators: FloatArray, unit: float, penalty: Penalty) -> FloatArray:
    """The penalty for M violating users: unit x M^2, or a fixed 5 units if M > 0."""
    if penalty == "progressive":
        return np.asarray(unit * violators**2)
    return np.asarray(FIXED_UNITS * unit * (violators > 0))
