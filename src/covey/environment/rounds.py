"""N networks that play surrogate rounds side by side, in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from covey.allocation import noise_levels, project_many
from covey.data.partitions import draw_groups, draw_sizes
from covey.environment.calibration import Calibration
from covey.environment.reward import Outcome
from covey.environment.site import Bools, Floats, Ints, Site, View, site_of
from covey.environment.surrogate import announced, learn
from covey.learning import random_identities
from covey.radio import Channel, build_mobility, distances, place
from covey.scenario import Scenario
from covey.scenario.schema import Reward
from covey.seeding import generator


class Rounds(Protocol):
    """N networks that play rounds together: `reset`, then `step` until `done`."""

    site: Site
    scenario: Scenario
    count: int

    def reset(self, seeds: Sequence[int]) -> View:
        """Start one network per seed; equal seeds give equal layouts, sizes, groups and walks."""
        ...

    @property
    def view(self) -> View:
        """What the stations see now."""
        ...

    @property
    def positions_m(self) -> tuple[Floats, Floats]:
        """Stations (N, B, 2) and users (N, U, 2) in metres."""
        ...

    @property
    def groups(self) -> Ints:
        """True groups (N, U), for measurement and pictures only."""
        ...

    @property
    def done(self) -> bool:
        """Whether the last round has been played."""
        ...

    def step(self, selected: Bools) -> Outcome:
        """Play a round in which the stations select these users, (N, B, U)."""
        ...


@dataclass
class _Layouts:
    """What the seeds of N networks determine."""

    seeds: list[int]
    stations_m: Floats
    users_m: Floats
    memory: list[Floats]
    samples: Ints
    groups: Ints
    channels: list[Channel]
    offsets: Floats


@dataclass(frozen=True)
class _Step:
    """What the last round started from: losses (N, G, K), and whom it served, (N, U)."""

    view: View
    losses: Floats
    served: Bools


class SurrogateRounds:
    """N networks whose learning is the surrogate; layouts, sizes, groups and walks are those of real runs.

    Users' privacy budgets are not followed: nobody sits out.
    """

    def __init__(self, scenario: Scenario, calibration: Calibration, count: int = 1) -> None:
        calibration.check(scenario)
        self.scenario = scenario
        self.count = count
        self.site = site_of(scenario, calibration.weights)
        self._constants = calibration.constants
        self._mobility = build_mobility(scenario.mobility, scenario.network.area_m)
        self._oracle = scenario.clustering.rule == "oracle"
        self._layouts: _Layouts | None = None
        self._last: _Step | None = None

    def reset(self, seeds: Sequence[int]) -> View:
        """Start one network per seed."""
        if len(seeds) != self.count:
            raise ValueError(f"{len(seeds)} seeds for {self.count} networks; give one seed for each")
        scenario, network = self.scenario, self.scenario.network
        places = [place(network, seed) for seed in seeds]
        self._layouts = _Layouts(
            seeds=list(seeds),
            stations_m=np.stack([stations_m for stations_m, _ in places]),
            users_m=np.stack([users_m for _, users_m in places]),
            memory=[
                self._mobility.start(users_m, generator(seed, "mobility"))
                for (_, users_m), seed in zip(places, seeds, strict=True)
            ],
            samples=np.stack([draw_sizes(scenario.data, network.users, seed) for seed in seeds]),
            groups=np.stack([draw_groups(network.users, network.tasks, seed) for seed in seeds]),
            channels=[Channel(scenario.radio, network.min_distance_m, seed) for seed in seeds],
            offsets=np.stack([self._draw(seed, network.users, 0.0, self._constants.offset_std) for seed in seeds]),
        )
        self._round, self._last = 0, None
        constants = self._constants
        # Streams of users and of models are apart, so that more users do not change the models.
        self._losses = np.stack(
            [self._draw(seed, network.tasks, constants.start, constants.start_std, models=1) for seed in seeds]
        )
        self._view: View | None = None
        self._view = self._look()
        return self._view

    @property
    def view(self) -> View:
        """What the stations see now."""
        if self._layouts is None or self._view is None:
            raise ValueError("the networks have not been started; call reset first")
        return self._view

    @property
    def positions_m(self) -> tuple[Floats, Floats]:
        """Stations (N, B, 2) and users (N, U, 2) in metres."""
        layouts = self._started()
        return layouts.stations_m, layouts.users_m

    @property
    def groups(self) -> Ints:
        """True groups (N, U), for measurement and pictures only."""
        return self._started().groups

    @property
    def done(self) -> bool:
        """Whether the last round has been played."""
        return self._round >= self.site.rounds

    def step(self, selected: Bools) -> Outcome:
        """Play a round in which the stations select these users, (N, B, U)."""
        layouts, view, site = self._started(), self.view, self.site
        self._last = None
        plans = project_many(
            selected & view.available[:, None, :],
            view.identities,
            site.capable,
            view.gains,
            view.samples,
            blocks=site.blocks,
            downlink_slots=site.downlink_slots,
            power_w=site.power_w,
            noise_w=site.noise_w,
            min_sinr=site.min_sinr,
            first_station=np.full(self.count, self._round % site.stations),
        )
        served = plans.station >= 0
        noise_std, leakage = self._noise(view.identities, view.samples, served)
        before = self._user_losses(view)
        self._last = _Step(view, self._losses, served)
        self._losses = learn(
            self._constants,
            self._losses,
            layouts.groups,
            view.identities,
            view.samples,
            served,
            noise_std,
        )
        outcome = Outcome(
            station=plans.station,
            block=plans.block,
            active=plans.active,
            violators=plans.violators,
            kinds=plans.kinds,
            station_violations=plans.station_violations,
            noise_std=noise_std,
            loss_before=before,
            loss=self._user_losses(view),
            leakage=leakage,
        )
        self._round += 1
        self._move()
        self._view = self._look()
        return outcome

    def marginal_gains(self, weights: Reward) -> tuple[Floats, Bools]:
        """What serving each user was worth in the last round, and who is or would be the only one of its task, (N, U).

        The worth of a user is the difference that serving it makes, all others as they were: in this round's reward
        without penalty, and, through the models it leaves, in the costs before the next round times the rounds left.
        """
        if self._last is None:
            raise ValueError("no round has been played yet; call step first")
        view, losses, served = self._last.view, self._last.losses, self._last.served
        users = served.shape[1]
        toggled = served[:, None, :] ^ np.eye(users, dtype=bool)  # (N, U, U): row i serves user i or not, the other way
        base = self._worth(view, losses, served, np.arange(self.count), weights)
        rows = np.repeat(np.arange(self.count), users)
        other = self._worth(view, losses, toggled.reshape(-1, users), rows, weights).reshape(served.shape)
        same_task = view.identities[:, :, None] == view.identities[:, None, :]
        others = (same_task & served[:, None, :] & ~np.eye(users, dtype=bool)).sum(axis=2)
        return np.where(served, base[:, None] - other, other - base[:, None]), others == 0

    def _worth(self, view: View, losses: Floats, served: Bools, rows: Ints, weights: Reward) -> Floats:
        """(M,) reward without penalty and next costs for all rounds left, if network `rows[m]` served `served[m]`."""
        layouts = self._started()
        groups, identities, samples = layouts.groups[rows], view.identities[rows], view.samples[rows]
        noise_std, leakage = self._noise(identities, samples, served)
        after = learn(self._constants, losses[rows], groups, identities, samples, served, noise_std)
        # The same errors of judgement as without the change, so that only what serving the user does is counted.
        errors = self._judgement(layouts)[rows]
        following = groups if self._oracle else announced(after, groups, layouts.offsets[rows] + errors)
        users, left = served.shape[1], self.site.rounds - view.round - 1
        cost, next_cost = (_cost(after, groups, tasks, samples) / users for tasks in (identities, following))
        return np.asarray(-cost - left * next_cost - weights.leakage_weight * leakage.sum(axis=1) / users)

    def _started(self) -> _Layouts:
        if self._layouts is None:
            raise ValueError("the networks have not been started; call reset first")
        return self._layouts

    def _noise(self, identities: Ints, samples: Ints, served: Bools) -> tuple[Floats, Floats]:
        """Noise levels and leakage, (M, U) each; the tasks of all networks are solved as one problem."""
        privacy, tasks, count = self.scenario.privacy, self.site.tasks, len(served)
        if privacy.noise == "off":
            return np.zeros(served.shape), np.zeros(served.shape)
        task = np.where(served, identities + tasks * np.arange(count)[:, None], -1)
        levels = noise_levels(samples.ravel(), task.ravel(), privacy.v_max, privacy.n_min, tasks=tasks * count)
        std = levels.std.reshape(served.shape)
        leakage = np.divide(1.0, (samples * std) ** 2, out=np.zeros(served.shape), where=served)
        return std, leakage

    def _user_losses(self, view: View) -> Floats:
        """(N, U) loss of each user on its announced task's model."""
        own = np.take_along_axis(self._losses, self._started().groups[:, :, None], axis=1)
        return np.asarray(np.take_along_axis(own, view.identities[:, :, None], axis=2)[:, :, 0])

    def _draw(self, seed: int, rows: int, mean: float, std: float, models: int = 0) -> Floats:
        """(rows, K) normal numbers of a network; losses are not negative."""
        drawn = generator(seed, "surrogate", user=models).normal(mean, std, (rows, self.scenario.network.tasks))
        return np.maximum(drawn, 0.0) if models else drawn

    def _gains(self, layouts: _Layouts) -> Floats:
        """(N, U, B) linear power gains in this round."""
        radio = self.scenario.radio
        if radio.fading == "none" and radio.shadowing_db == 0:
            # Nothing is drawn, so that one channel serves all networks at once.
            return layouts.channels[0].gains(layouts.users_m, layouts.stations_m, self._round)
        networks = zip(layouts.users_m, layouts.stations_m, layouts.channels, strict=True)
        return np.stack([channel.gains(users_m, stations_m, self._round) for users_m, stations_m, channel in networks])

    def _judgement(self, layouts: _Layouts) -> Floats:
        """(N, U, K): errors with which users compare their losses in this round."""
        shape, std = (layouts.groups.shape[1], self.scenario.network.tasks), self._constants.judgement_std
        streams = (generator(seed, "surrogate", user=2, round=self._round) for seed in layouts.seeds)
        return np.stack([rng.normal(0.0, std, shape) for rng in streams])

    def _move(self) -> None:
        layouts, step_s = self._started(), self.scenario.mobility.round_s
        users_m = layouts.users_m.copy()
        for index, seed in enumerate(layouts.seeds):
            rng = generator(seed, "mobility", round=self._round)
            users_m[index], layouts.memory[index] = self._mobility.move(
                layouts.users_m[index], layouts.memory[index], step_s, rng
            )
        layouts.users_m = users_m

    def _look(self) -> View:
        layouts, network = self._started(), self.scenario.network
        if self._oracle:
            identities = layouts.groups
        elif self._round == 0:
            identities = np.stack(
                [random_identities(network.users, network.tasks, generator(seed, "identity")) for seed in layouts.seeds]
            )
        else:
            identities = announced(self._losses, layouts.groups, layouts.offsets + self._judgement(layouts))
        last = self._view
        return View(
            round=self._round,
            identities=identities,
            distances_m=distances(layouts.users_m, layouts.stations_m),
            gains=self._gains(layouts),
            samples=layouts.samples,
            available=np.ones(identities.shape, dtype=bool),
            kept=np.zeros(identities.shape, dtype=bool) if last is None else last.identities == identities,
        )


def _cost(losses: Floats, groups: Ints, tasks: Ints, samples: Ints) -> Floats:
    """(M,) losses summed over all samples, from losses (M, G, K) and users' groups, tasks and samples (M, U)."""
    own = np.take_along_axis(losses, groups[:, :, None], axis=1)
    return np.asarray((samples * np.take_along_axis(own, tasks[:, :, None], axis=2)[:, :, 0]).sum(axis=1))
