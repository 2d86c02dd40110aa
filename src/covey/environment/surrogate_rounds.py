"""N networks that play surrogate rounds in one batch of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from covey.allocation import noise_levels
from covey.arrays import BoolArray, FloatArray, IntArray
from covey.data.dealing import draw_sizes, groups_of_users
from covey.environment.calibration import Calibration
from covey.environment.known_tasks import check_tasks_are_known
from covey.environment.reward import Outcome
from covey.environment.streams import Streams
from covey.environment.surrogate import announced, learn, own_losses
from covey.identification import random_identities
from covey.identification.rule import build_rule
from covey.network import NetworkLimits, Observation
from covey.radio import Channel, ChannelModel, build_channel, build_mobility, distances, moves_in_arrays, place
from covey.scenario import Scenario
from covey.scenario.schema import Reward
from covey.seeding import generator


class Rounds(Protocol):
    """N networks that play rounds in lockstep: `reset`, then `step` until `done`."""

    limits: NetworkLimits
    scenario: Scenario
    count: int

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start one network per seed; equal seeds give equal layouts, sample counts, groups and trajectories."""
        ...

    @property
    def observation(self) -> Observation:
        """The current observation of the stations."""
        ...

    @property
    def positions_m(self) -> tuple[FloatArray, FloatArray]:
        """Stations (N, B, 2) and users (N, U, 2) in metres."""
        ...

    @property
    def groups(self) -> IntArray:
        """True groups (N, U), for measurement and pictures only."""
        ...

    @property
    def done(self) -> bool:
        """Whether the last round has been played."""
        ...

    def step(self, selected: BoolArray) -> Outcome:
        """Play a round in which the stations select these users, (N, B, U)."""
        ...


@dataclass
class _Layouts:
    """The parts of N networks that their seeds determine."""

    seeds: list[int]
    streams: Streams
    stations_m: FloatArray
    users_m: FloatArray
    memory: FloatArray
    samples: IntArray
    groups: IntArray
    channels: list[ChannelModel]
    offsets: FloatArray


@dataclass(frozen=True)
class _Step:
    """The state before the last round: losses (N, G, K); and the users that it served, (N, U)."""

    observation: Observation
    losses: FloatArray
    served: BoolArray


class SurrogateRounds:
    """N networks that learn by the surrogate; layouts, sample counts, groups and trajectories equal those of real runs.

    Privacy budgets are not tracked: all users stay available.
    """

    def __init__(self, scenario: Scenario, calibration: Calibration, count: int = 1) -> None:
        calibration.check(scenario)
        self.scenario = scenario
        self.count = count
        check_tasks_are_known(scenario)
        self.limits = NetworkLimits.of(scenario, calibration.weights)
        self._constants = calibration.constants
        self._mobility = build_mobility(scenario.mobility, scenario.network.area_m)
        self._in_arrays = self._mobility if moves_in_arrays(self._mobility) else None
        self._oracle = build_rule(scenario).given
        self._layouts: _Layouts | None = None
        self._last: _Step | None = None

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Start one network per seed."""
        if len(seeds) != self.count:
            raise ValueError(f"{len(seeds)} seeds for {self.count} networks; give one seed for each")
        scenario, network, constants = self.scenario, self.scenario.network, self._constants
        streams = Streams(seeds)
        places = [place(network, seed) for seed in seeds]
        self._layouts = _Layouts(
            seeds=list(seeds),
            streams=streams,
            stations_m=np.stack([stations_m for stations_m, _ in places]),
            users_m=np.stack([users_m for _, users_m in places]),
            memory=np.stack(
                [
                    self._mobility.start(users_m, rng)
                    for (_, users_m), rng in zip(places, self._walks(streams, seeds, 0), strict=True)
                ]
            ),
            samples=np.stack([draw_sizes(scenario.data, network.users, seed) for seed in seeds]),
            groups=np.stack([groups_of_users(scenario, seed) for seed in seeds]),
            channels=[build_channel(scenario, seed) for seed in seeds],
            offsets=self._draw(streams, 0, network.users, 0.0, constants.offset_std),
        )
        self._round, self._last = 0, None
        # Streams of users and of models are apart, so that more users do not change the models.
        self._losses = np.maximum(self._draw(streams, 1, scenario.groups, constants.start, constants.start_std), 0.0)
        self._seen: Observation | None = None
        self._seen = self._look()
        return self._seen

    @property
    def observation(self) -> Observation:
        """The current observation of the stations."""
        if self._layouts is None or self._seen is None:
            raise ValueError("the networks have not been started; call reset first")
        return self._seen

    @property
    def positions_m(self) -> tuple[FloatArray, FloatArray]:
        """Stations (N, B, 2) and users (N, U, 2) in metres."""
        layouts = self._started()
        return layouts.stations_m, layouts.users_m

    @property
    def groups(self) -> IntArray:
        """True groups (N, U), for measurement and pictures only."""
        return self._started().groups

    @property
    def done(self) -> bool:
        """Whether the last round has been played."""
        return self._round >= self.limits.rounds

    def step(self, selected: BoolArray) -> Outcome:
        """Play a round in which the stations select these users, (N, B, U)."""
        layouts, observation = self._started(), self.observation
        self._last = None
        plan = observation.project(selected & observation.available[:, None, :])
        served = plan.served
        noise_std, leaked = self._noise(observation.identities, observation.samples, served)
        before = own_losses(self._losses, layouts.groups, observation.identities)
        self._last = _Step(observation, self._losses, served)
        self._losses = learn(
            self._constants,
            self._losses,
            layouts.groups,
            observation.identities,
            observation.samples,
            served,
            noise_std,
        )
        outcome = Outcome.of(
            plan,
            noise_std=noise_std,
            loss_before=before,
            loss=own_losses(self._losses, layouts.groups, observation.identities),
            leakage=leaked,
        )
        self._round += 1
        self._move()
        self._seen = self._look()
        return outcome

    def marginal_gains(self, weights: Reward) -> tuple[FloatArray, BoolArray]:
        """Marginal gain of serving each user in the last round, and whether no other user of its task was served.

        Both (N, U).

        The marginal gain is the difference between serving and not serving the user, all others unchanged: in this
        round's reward without penalty, and, through the resulting models, in the next round's cost times the rounds
        left.
        """
        if self._last is None:
            raise ValueError("no round has been played yet; call step first")
        seen, losses, served = self._last.observation, self._last.losses, self._last.served
        users = served.shape[1]
        toggled = served[:, None, :] ^ np.eye(users, dtype=bool)  # (N, U, U): row i flips user i
        base = self._worth(seen, losses, served, np.arange(self.count), weights)
        rows = np.repeat(np.arange(self.count), users)
        other = self._worth(seen, losses, toggled.reshape(-1, users), rows, weights).reshape(served.shape)
        same_task = seen.identities[:, :, None] == seen.identities[:, None, :]
        others = (same_task & served[:, None, :] & ~np.eye(users, dtype=bool)).sum(axis=2)
        return np.where(served, base[:, None] - other, other - base[:, None]), others == 0

    def _worth(
        self, seen: Observation, losses: FloatArray, served: BoolArray, rows: IntArray, weights: Reward
    ) -> FloatArray:
        """(M,) reward without penalty minus next cost x rounds left, if network `rows[m]` serves `served[m]`."""
        layouts = self._started()
        groups, identities, samples = layouts.groups[rows], seen.identities[rows], seen.samples[rows]
        noise_std, leaked = self._noise(identities, samples, served)
        after = learn(self._constants, losses[rows], groups, identities, samples, served, noise_std)
        # The same estimation errors as without the change, so that the difference is due to serving the user alone.
        errors = self._judgement(layouts)[rows]
        following = groups if self._oracle else announced(after, groups, layouts.offsets[rows] + errors)
        users, left = served.shape[1], self.limits.rounds - seen.round - 1
        cost, next_cost = (
            (samples * own_losses(after, groups, tasks)).sum(axis=1) / users for tasks in (identities, following)
        )
        return np.asarray(-cost - left * next_cost - weights.leakage_weight * leaked.sum(axis=1) / users)

    def _started(self) -> _Layouts:
        if self._layouts is None:
            raise ValueError("the networks have not been started; call reset first")
        return self._layouts

    def _noise(self, identities: IntArray, samples: IntArray, served: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Noise levels and leakage, (M, U) each."""
        privacy = self.scenario.privacy
        if privacy.noise == "off":
            return np.zeros(served.shape), np.zeros(served.shape)
        task = np.where(served, identities, -1)
        levels = noise_levels(samples, task, privacy.v_max, privacy.n_min, self.limits.tasks)
        return levels.std, levels.leakage

    def _draw(self, streams: Streams, stream: int, rows: int, mean: float, std: float, round: int = 0) -> FloatArray:
        """(N, rows, K) normal values, from surrogate stream `stream` of each network."""
        shape = (rows, self.limits.tasks)
        drawn_from = streams.generators("surrogate", user=stream, round=round)
        return np.concatenate([rng.normal(mean, std, shape) for rng in drawn_from]).reshape(-1, *shape)

    def _gains(self, layouts: _Layouts, distance_m: FloatArray) -> FloatArray:
        """(N, U, B) linear power gains in this round."""
        first = layouts.channels[0]
        if type(first) is Channel and not first.draws:
            # One channel serves all networks at once.
            return first.gains_over(distance_m, self._round)
        networks = zip(layouts.channels, layouts.users_m, layouts.stations_m, strict=True)
        return np.stack([channel.gains(users_m, stations_m, self._round) for channel, users_m, stations_m in networks])

    def _judgement(self, layouts: _Layouts) -> FloatArray:
        """(N, U, K): estimation errors of the users' losses in this round."""
        std = self._constants.judgement_std
        return self._draw(layouts.streams, 2, self.limits.users, 0.0, std, self._round)

    def _walks(self, streams: Streams, seeds: Sequence[int], round: int) -> list[np.random.Generator]:
        """The mobility RNG of each network in this round."""
        if self._in_arrays is not None:
            return streams.generators("mobility", round=round)
        # Third-party models may do more with a generator than draw from it.
        return [generator(seed, "mobility", round=round) for seed in seeds]

    def _move(self) -> None:
        layouts, model, step_s = self._started(), self._in_arrays, self.scenario.mobility.round_s
        walks = self._walks(layouts.streams, layouts.seeds, self._round)
        if model is not None:
            drawn = np.concatenate([model.draw(self.limits.users, rng) for rng in walks])
            drawn = drawn.reshape(self.count, self.limits.users, -1)
            layouts.users_m, layouts.memory = model.moved(layouts.users_m, layouts.memory, drawn, step_s)
            return
        networks = zip(layouts.users_m, layouts.memory, walks, strict=True)
        moved = [self._mobility.move(users_m, memory, step_s, rng) for users_m, memory, rng in networks]
        layouts.users_m = np.array([users_m for users_m, _ in moved], dtype=np.float64)
        layouts.memory = np.stack([memory for _, memory in moved])

    def _look(self) -> Observation:
        layouts, network = self._started(), self.scenario.network
        if self._oracle:
            identities = layouts.groups
        elif self._round == 0:
            drawn_from = layouts.streams.generators("identity")
            identities = np.stack([random_identities(network.users, network.tasks, rng) for rng in drawn_from])
        else:
            identities = announced(self._losses, layouts.groups, layouts.offsets + self._judgement(layouts))
        last, distance_m = self._seen, distances(layouts.users_m, layouts.stations_m)
        return Observation(
            round=self._round,
            identities=identities,
            distances_m=distance_m,
            gains=self._gains(layouts, distance_m),
            samples=layouts.samples,
            available=np.ones(identities.shape, dtype=bool),
            kept=np.zeros(identities.shape, dtype=bool) if last is None else last.identities == identities,
            limits=self.limits,
        )
