"""One network of the playground: its links, and the outcome of a policy's selection. Nothing is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.allocation import Allocation, CheckReport, Problem, check, noise_levels
from covey.association import ExactPolicy, Policy, get_policy, quick_up_to, validated_selection
from covey.dashboard.reasons import why_not_served
from covey.data import load_dataset
from covey.data.dealing import draw_groups, draw_sizes
from covey.data.transforms.protocol import transformed_shape
from covey.environment.known_tasks import check_tasks_are_known
from covey.errors import PolicyError, ScenarioError
from covey.federated import build_model, count_weights
from covey.network import VIOLATION_KINDS, NetworkLimits, Observation, Plan, model_bits
from covey.privacy import epsilon, release_rho
from covey.radio import build_channel, distances, place
from covey.scenario import Scenario, schema
from covey.seeding import generator
from covey.simulation.target import with_target
from covey.simulation.world import clipping_norms

#: Maximum number of users for slow policies, and time limit of the exact one in seconds.
_SLOW_USERS, _EXACT_S = 24, 2.0
#: Limits on models that are built to count their weights.
_DEEPEST, _WIDEST = 4, 4096
#: Sample shapes and classes of data sets that are too large to load just for their shape.
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "digits": ((1, 8, 8), 10),
    "cifar10": ((3, 32, 32), 10),
    "femnist": ((1, 28, 28), 62),
    "mnist": ((1, 28, 28), 10),
    "fashion_mnist": ((1, 28, 28), 10),
}


class Network:
    """One network in one round, and the outcomes of policies on it.

    tasks, samples: per user; drawn from the seed as in a run if not given.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        round: int,
        tasks: Sequence[int] | None = None,
        samples: Sequence[int] | None = None,
    ) -> None:
        size, users = scenario.network, scenario.network.users
        self.scenario, self._seed, self._round = scenario, seed, round
        weights = 0 if scenario.radio.model_bits else _weights(scenario.model, scenario.data.model_dump_json())
        self._model_bits = model_bits(scenario.radio, weights)
        check_tasks_are_known(scenario)
        if scenario.radio.uplink != "ofdma":
            raise ScenarioError(
                f"the playground checks the uplink 'ofdma' only, not '{scenario.radio.uplink}'; set radio.uplink ="
                ' "ofdma" or run the scenario'
            )
        self.limits = NetworkLimits.of(scenario, weights)
        self.stations_m, self.users_m = place(size, seed)
        self.tasks = _given(tasks, draw_groups(users, size.tasks, seed), "tasks")
        self.samples = _given(samples, draw_sizes(scenario.data, users, seed), "samples")
        self.scenario = scenario = with_target(scenario, self.samples)
        if self.tasks.max() >= size.tasks:
            raise ScenarioError(f"a user has task {self.tasks.max()}, but tasks are numbered 0 to {size.tasks - 1}")
        gains = build_channel(scenario, seed).gains(self.users_m, self.stations_m, round)
        self.observation = Observation(
            round=round,
            identities=self.tasks,
            distances_m=distances(self.users_m, self.stations_m),
            gains=gains,
            samples=self.samples,
            available=np.ones(users, dtype=bool),
            kept=np.zeros(users, dtype=bool),
            limits=self.limits,
        )
        self._clip = clipping_norms(scenario, self.samples)

    @cached_property
    def alone_bps(self) -> NDArray[np.float64]:
        """(U, B) interference-free rate of every user at every station."""
        return self.limits.uplink.alone_bps(self.observation.gains, self.limits)

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """(U, B): the station runs the user's task, and the interference-free rate reaches the rate floor."""
        reached = self.alone_bps >= self.scenario.radio.min_rate_bps
        return np.asarray(reached & self.observation.eligible.T)

    def outcome(self, name: str, rounds: int) -> dict[str, Any]:
        """The selection of a policy and its outcome."""
        try:
            selected = self._choose(name)
        except PolicyError as error:
            return {"name": name, "error": str(error)}
        plan, privacy = self.observation.project(selected), self.scenario.privacy
        task = np.where(plan.served, self.tasks, -1)
        if privacy.noise == "off":
            noise_std = np.zeros(len(task))
        else:
            noise_std = noise_levels(self.samples, task, privacy.v_max, privacy.n_min, tasks=self.limits.tasks).std
        rho = np.where(plan.served, release_rho(self._clip, noise_std, privacy.adjacency), 0.0)
        spent = np.array([epsilon(float(rounds * cost), privacy.delta) for cost in rho])
        report = check(
            Allocation.from_indices(
                plan.station, plan.block, noise_std, stations=self.limits.stations, blocks=self.limits.radio.blocks
            ),
            self._problem(),
        )
        return {
            "name": name,
            "error": "",
            "served": int(plan.served.sum()),
            "samples": int(self.samples[plan.served].sum()),
            "broadcasts": int(plan.active.sum()),
            "violators": int(plan.violators.sum()),
            "violation": _flags(plan).tolist(),
            "epsilon_max": float(spent.max()),
            "selected": selected.T.tolist(),
            "station": plan.station.tolist(),
            "block": plan.block.tolist(),
            "rate_bps": self.limits.uplink.rates_of(self.observation.gains, plan, self.limits).tolist(),
            "noise_std": noise_std.tolist(),
            "rho": rho.tolist(),
            "epsilon": spent.tolist(),
            "reason": why_not_served(plan, selected, self.observation, self.feasible),
            "constraints": self._constraints(report),
        }

    def _choose(self, name: str) -> NDArray[np.bool_]:
        policy: Policy = get_policy(name)
        if quick_up_to(policy) is not None and self.limits.users > _SLOW_USERS:
            raise PolicyError(f"the {name} policy is for up to {_SLOW_USERS} users here; use local_search")
        if isinstance(policy, ExactPolicy):
            policy.time_limit_s = _EXACT_S
        answer = policy(self.observation, generator(self._seed, "policy", round=self._round))
        return validated_selection(answer, self.limits.users, self.limits.stations)

    def _problem(self) -> Problem:
        radio, privacy = self.scenario.radio, self.scenario.privacy
        return Problem(
            gains=self.observation.gains,
            identities=self.tasks,
            capable=self.limits.capable,
            samples=self.samples.astype(np.float64),
            power_w=self.limits.radio.power_w,
            noise_w=self.limits.radio.noise_w,
            bandwidth_hz=radio.block_bandwidth_hz,
            min_rate_bps=radio.min_rate_bps,
            v_max=privacy.v_max,
            n_min=privacy.n_min,
            model_bits=self._model_bits,
            downlink_rate_bps=radio.downlink_rate_bps,
            downlink_limit_s=radio.downlink_limit_s,
        )

    def _constraints(self, report: CheckReport) -> list[dict[str, Any]]:
        """The constraints on a selection, with their slack."""
        radio, privacy = self.scenario.radio, self.scenario.privacy
        one_broadcast_s = self._model_bits / radio.downlink_rate_bps
        # A constraint binds if its slack is below one unit: a user, a broadcast, or a small share of noise or rate.
        steps = {
            "users_per_station": (0.5, self.limits.radio.blocks),
            "downlink_time": (one_broadcast_s, radio.downlink_limit_s),
            "uplink_rate": (0.01 * radio.min_rate_bps, radio.min_rate_bps),
            "noise_cap": (1e-6 * privacy.v_max * float(self.samples.sum()), privacy.v_max),
            "noise_floor": (1e-6 * max(privacy.n_min, 1.0), max(privacy.n_min, 1.0)),
        }
        shown = []
        for name, (step, limit) in steps.items():
            constraint = report[name]
            slack = constraint.slack
            near = np.argwhere(slack < step)
            shown.append(
                {
                    "name": name,
                    "equation": constraint.equation,
                    "ok": constraint.ok or (privacy.noise == "off" and name == "noise_floor"),
                    "slack": constraint.worst if math.isfinite(constraint.worst) else None,
                    "limit": limit,
                    "axes": list(constraint.axes),
                    "binding": near.tolist(),
                }
            )
        return shown


def _flags(plan: Plan) -> NDArray[np.int64]:
    """(U,) violations of every user as a bit mask, as in users.csv."""
    bits = [plan.kinds[kind].astype(np.int64) << bit for bit, kind in enumerate(VIOLATION_KINDS)]
    return np.asarray(np.sum(bits, axis=0))


def _given(values: Sequence[int] | None, drawn: NDArray[np.int64], name: str) -> NDArray[np.int64]:
    if values is None:
        return drawn
    if len(values) != len(drawn):
        raise ScenarioError(f"there are {len(values)} {name} for {len(drawn)} users; give one for each")
    return np.array(values, dtype=np.int64)


@lru_cache(maxsize=64)
def _weights(model: schema.Model, data_json: str) -> int:
    """Number of weights of the model, without loading data whose shape is known."""
    data = schema.Data.model_validate_json(data_json)
    widths = (*model.hidden, *model.channels, data.features, data.classes)
    if max(widths) > _WIDEST or len(model.hidden) > _DEEPEST:
        raise ScenarioError(
            f"the playground builds models of up to {_DEEPEST} layers and {_WIDEST:,} units, features or classes; set"
            " radio.model_bits to play with a larger one"
        )
    if data.name in SHAPES:
        shape, classes = SHAPES[data.name]
    elif data.name == "synthetic":
        shape, classes = (data.features,), data.classes
    else:
        dataset = load_dataset(data)
        shape, classes = dataset.x.shape[1:], len(dataset.classes)
    return count_weights(build_model(model, transformed_shape(data, shape), classes))
