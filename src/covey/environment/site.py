"""What never changes in an environment, and what its stations see before they choose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.allocation import min_sinr
from covey.allocation.arrays import dense
from covey.association import Observation
from covey.compiled import compiled
from covey.errors import ScenarioError
from covey.radio import dbm_to_w, downlink_slots
from covey.scenario import Scenario
from covey.simulation.world import capability

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Site:
    """The fixed side of a network.

    capable: (B, K) tasks of each station; blocks: R; downlink_slots: (station, task) broadcasts that fit in a
    round; power_w, noise_w, min_sinr: as in `Observation`; area_m: diagonal of the area, metres; rounds: T.
    """

    capable: Bools
    users: int
    blocks: int
    downlink_slots: int
    power_w: float
    noise_w: float
    min_sinr: float
    diagonal_m: float
    rounds: int

    @property
    def stations(self) -> int:
        """Number of stations, B."""
        return len(self.capable)

    @property
    def tasks(self) -> int:
        """Number of tasks, K."""
        return int(self.capable.shape[1])


def check_tasks_are_known(scenario: Scenario) -> None:
    """Raise `ScenarioError` where stations do not know the users' tasks, which every learned choice rests on."""
    if scenario.security.mode != "none":
        raise ScenarioError(
            f"in scenario '{scenario.name}' stations do not know the users' tasks (security.mode ="
            f" '{scenario.security.mode}'), which environments and learned policies need; use a reference policy such"
            " as greedy, or security.mode = 'none'"
        )


def site_of(scenario: Scenario, weights: int) -> Site:
    """The site of a scenario whose model has so many `weights`; `ScenarioError` where stations do not know tasks."""
    check_tasks_are_known(scenario)
    network, radio = scenario.network, scenario.radio
    bits = weights * radio.bits_per_weight if radio.model_bits is None else radio.model_bits
    return Site(
        capable=capability(scenario),
        users=network.users,
        blocks=network.blocks,
        downlink_slots=downlink_slots(radio.downlink_limit_s, bits, radio.downlink_rate_bps),
        power_w=dbm_to_w(radio.user_power_dbm),
        noise_w=dbm_to_w(radio.noise_dbm_per_block),
        min_sinr=min_sinr(radio.min_rate_bps, radio.block_bandwidth_hz),
        diagonal_m=float(np.hypot(*network.area_m)),
        rounds=scenario.training.rounds,
    )


@dataclass(frozen=True)
class View:
    """N networks in the same round, as their stations see them.

    identities: (N, U) announced tasks; distances_m, gains: (N, U, B); samples: (N, U); available: (N, U), False
    for users that sit out; kept: (N, U), users that announced the same task in the last round.
    """

    round: int
    identities: Ints
    distances_m: Floats
    gains: Floats
    samples: Ints
    available: Bools
    kept: Bools

    def eligible(self, site: Site) -> Bools:
        """(N, B, U): users that are available and whose task the station can run."""
        return _eligible(
            dense(site.capable, np.bool_), dense(self.identities, np.int64), dense(self.available, np.bool_)
        )

    def owned(self, site: Site) -> Bools:
        """(N, B, U): eligible users whose task belongs to the station in this round.

        Every task belongs to one of the stations that can run it, in turns; all stations know the order, so that
        two stations that keep to it never choose the same user, without a word between them.
        """
        turn = np.where(site.capable, self.turns(site)[:, None], site.stations)
        owner = turn.argmin(axis=0)  # (K,)
        mine = owner[self.identities][:, None, :] == np.arange(site.stations)[None, :, None]
        return np.asarray(mine & self.eligible(site))

    def turns(self, site: Site) -> Ints:
        """(B,): the place of each station in this round's order, which rotates as in the block matching."""
        return np.asarray((np.arange(site.stations) - self.round) % site.stations)

    def observation(self, site: Site, index: int = 0) -> Observation:
        """Network `index` as a policy sees it."""
        return Observation(
            round=self.round,
            identities=self.identities[index],
            distances_m=self.distances_m[index],
            gains=self.gains[index],
            samples=self.samples[index],
            capable=site.capable,
            blocks=site.blocks,
            downlink_slots=site.downlink_slots,
            power_w=site.power_w,
            noise_w=site.noise_w,
            min_sinr=site.min_sinr,
            available=self.available[index],
            kept=self.kept[index],
        )


@compiled
def _eligible(capable: Bools, identities: Ints, available: Bools) -> Bools:
    """(N, B, U), from capable: (B, K), identities and available: (N, U)."""
    networks, users = identities.shape
    stations, tasks = capable.shape
    if available.shape != identities.shape:
        raise ValueError("identities and available do not fit together; both must be (N, U)")
    found = np.empty((networks, stations, users), dtype=np.bool_)
    for n in range(networks):
        for b in range(stations):
            for i in range(users):
                task = identities[n, i]
                if not 0 <= task < tasks:
                    raise IndexError("a user's task is beyond the last; number them from 0")
                found[n, b, i] = available[n, i] and capable[b, task]
    return found
