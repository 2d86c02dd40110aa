"""The reward (27), its parts, and the stations' shares of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from covey.environment.site import Bools, Floats, Ints
from covey.scenario.schema import Reward

Penalty = Literal["progressive", "fixed"]

#: The fixed penalty of any violation, in units of the progressive one.
FIXED_UNITS = 5.0


@dataclass(frozen=True)
class Outcome:
    """What one round did in N networks.

    station, block: (N, U), -1 for users that are not served; active: (N, B, K) broadcasts; violators: (N, U);
    kinds: violations by kind, (N, U) each; station_violations: (N, B); noise_std: (N, U); loss_before, loss: (N, U)
    mean loss of each user on its task's model before and after the round; leakage: (N, U) 1 / (X_i std_i)^2.
    """

    station: Ints
    block: Ints
    active: Bools
    violators: Bools
    kinds: Mapping[str, Bools]
    station_violations: Floats
    noise_std: Floats
    loss_before: Floats
    loss: Floats
    leakage: Floats

    @property
    def served(self) -> Ints:
        """Served users of each network, (N,)."""
        return np.asarray((self.station >= 0).sum(axis=1))


@dataclass(frozen=True)
class Rewards:
    """The reward of one round in N networks, and what it is made of.

    team: (N,) reward (27); without_penalty: (N,); penalty: (N,) positive; stations: (N, B), summing to `team`;
    cost_before, cost: (N,) summed losses per user before and after; leakage_cost: (N,) priced leakage per user;
    violators: (N,); station_violations: (N, B).
    """

    team: Floats
    without_penalty: Floats
    penalty: Floats
    stations: Floats
    cost_before: Floats
    cost: Floats
    leakage_cost: Floats
    violators: Floats
    station_violations: Floats


def rewards(outcome: Outcome, samples: Ints, weights: Reward, penalty: Penalty = "progressive") -> Rewards:
    """The rewards of a round; samples: (N, U).

    The team reward is Eq. (27) on the models after aggregation (errata E7). A station's share holds the losses and
    leakage of the users it served, an equal part of the losses of users nobody served, and the penalty in
    proportion to the violations charged to it, so that the shares sum to the team reward (errata E40).
    """
    users = samples.shape[1]
    losses = samples * outcome.loss / users
    priced = weights.leakage_weight * outcome.leakage / users
    without_penalty = -(losses + priced).sum(axis=1)
    violators = outcome.violators.sum(axis=1).astype(np.float64)
    size = penalty_of(violators, weights.penalty, penalty)
    by_station = outcome.station_violations / np.maximum(violators, 1.0)[:, None]
    stations = outcome.station_violations.shape[1]
    own = outcome.station[:, None, :] == np.arange(stations)[None, :, None]
    nobody = (losses * (outcome.station < 0)).sum(axis=1)
    shares = -np.einsum("nbu,nu->nb", own, losses + priced) - nobody[:, None] / stations - size[:, None] * by_station
    return Rewards(
        team=without_penalty - size,
        without_penalty=without_penalty,
        penalty=size,
        stations=shares,
        cost_before=(samples * outcome.loss_before).sum(axis=1) / users,
        cost=losses.sum(axis=1),
        leakage_cost=priced.sum(axis=1),
        violators=violators,
        station_violations=outcome.station_violations,
    )


def penalty_of(violators: Floats, unit: float, penalty: Penalty) -> Floats:
    """The penalty of so many violating users: unit x M^2, or a fixed 5 units as soon as there is one."""
    if penalty == "progressive":
        return np.asarray(unit * violators**2)
    return np.asarray(FIXED_UNITS * unit * (violators > 0))
