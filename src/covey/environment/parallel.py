"""The association problem as a PettingZoo parallel environment: one agent per station, one step per round."""

from __future__ import annotations

import operator
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from covey.arrays import BoolArray
from covey.association import validated_selection
from covey.environment.actions import allowed, subsets
from covey.environment.calibration import Calibration, calibration_for
from covey.environment.features import Features, FeatureSet, feature_names, features, state_vector
from covey.environment.real_rounds import RealRounds
from covey.environment.reward import Outcome, Penalty, Rewards, rewards
from covey.environment.surrogate_rounds import Rounds, SurrogateRounds
from covey.errors import PolicyError, ScenarioError
from covey.network import VIOLATION_KINDS, NetworkLimits
from covey.scenario import Scenario, load_scenario
from covey.seeding import generator

if TYPE_CHECKING:
    from covey.environment.render import Camera

Learning = Literal["surrogate", "real"]
Actions = Literal["subset", "binary"]
MaskIn = Literal["infos", "obs"]
RenderMode = Literal["rgb_array", "human"]
ActionMask = NDArray[np.int8]

#: Metrics in every agent's infos, always all of them; 0.0 after a reset. Only `station_violations` differs by agent.
INFO_KEYS = (
    "team_reward",
    "reward_without_penalty",
    "penalty",
    "cost_before",
    "cost",
    "leakage_cost",
    "served",
    "violators",
    *VIOLATION_KINDS,
    "station_violations",
)

#: Range of the layout seeds of resets without a seed; smaller seeds are reserved for evaluation.
_DRAWN_LAYOUTS = (2**40, 2**62)


def parallel_env(
    scenario: Scenario | str,
    *,
    learning: Learning = "surrogate",
    actions: Actions = "subset",
    penalty: Penalty = "progressive",
    features: FeatureSet = "paper",
    mask_in: MaskIn = "infos",
    calibration: Calibration | None = None,
    render_mode: RenderMode | None = None,
) -> AssociationEnv:
    """The association problem of a scenario (a `Scenario`, a preset's name or a TOML file) for PettingZoo.

    learning: how a round changes the models, by the `surrogate` (fitted, microseconds) or by `real` training;
    actions: numbered subsets of at most R users, or one bit per user; penalty, features: as in `rewards` and
    `features`; mask_in: where agents find their `action_mask`; calibration: of the surrogate, by default the shipped
    or fitted one.
    """
    return AssociationEnv(
        vector_env(scenario, 1, learning=learning, calibration=calibration),
        actions=actions,
        penalty=penalty,
        features=features,
        mask_in=mask_in,
        render_mode=render_mode,
    )


def vector_env(
    scenario: Scenario | str, count: int, *, learning: Learning = "surrogate", calibration: Calibration | None = None
) -> Rounds:
    """`count` networks of a scenario played in lockstep as one batch; arguments as in `parallel_env`."""
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario)
    _check_choice("learning", learning, get_args(Learning))
    if count < 1:
        raise ScenarioError(f"count is {count}; at least 1 network is played")
    if learning == "surrogate":
        return SurrogateRounds(scenario, calibration or calibration_for(scenario), count)
    if calibration is not None:
        raise ScenarioError("learning is 'real', which needs no calibration; leave it out or use learning='surrogate'")
    return RealRounds(scenario, count)


class AssociationEnv(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # PettingZoo has no type information
    """One agent per station, `bs_0` and so on; in every step each of them chooses the users it wants to serve.

    Plays the one network of `rounds`; the other arguments are those of `parallel_env`. An agent's reward is its share
    of the team reward, so that the agents' rewards sum to it; the team reward and its parts are in the infos.
    Masked and oversized selections are allowed: offending users are dropped, counted and penalised as violations.
    Episodes are truncated after the scenario's last round.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "covey_association_v0",
        "render_modes": list(get_args(RenderMode)),
        "render_fps": 2,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        rounds: Rounds,
        *,
        actions: Actions = "subset",
        penalty: Penalty = "progressive",
        features: FeatureSet = "paper",
        mask_in: MaskIn = "infos",
        render_mode: RenderMode | None = None,
    ) -> None:
        if rounds.count != 1:
            raise ValueError(f"rounds has {rounds.count} networks; an environment plays exactly 1")
        _check_choice("actions", actions, get_args(Actions))
        _check_choice("penalty", penalty, get_args(Penalty))
        _check_choice("features", features, get_args(FeatureSet))
        _check_choice("mask_in", mask_in, get_args(MaskIn))
        if render_mode is not None:
            _check_choice("render_mode", render_mode, get_args(RenderMode))
        self.rounds = rounds
        self.render_mode = render_mode
        self._binary, self._mask_in_obs = actions == "binary", mask_in == "obs"
        self._penalty, self._features = penalty, features
        limits = rounds.limits
        self.possible_agents = [f"bs_{b}" for b in range(limits.stations)]
        self.agents: list[str] = []
        self._low, self._high = _bounds(features, limits)
        seen: spaces.Space[Any] = spaces.Box(self._low, self._high, dtype=np.float32)
        choices = limits.users if self._binary else len(subsets(limits.users, limits.radio.blocks))
        chosen: spaces.Space[Any] = spaces.MultiBinary(choices) if self._binary else spaces.Discrete(choices)
        if self._mask_in_obs:
            seen = spaces.Dict({"observations": seen, "action_mask": spaces.Box(0, 1, (choices,), dtype=np.int8)})
        # Each agent has its own objects, so that seeding one agent's space does not affect the others.
        self.observation_spaces = {agent: deepcopy(seen) for agent in self.possible_agents}
        self.action_spaces = {agent: deepcopy(chosen) for agent in self.possible_agents}
        states = limits.users * (limits.tasks + limits.stations) + 1
        self.state_space = spaces.Box(0.0, 1.0, (states,), dtype=np.float32)
        self._seed: int | None = None
        self._drawn = 0
        self._camera: Camera | None = None
        if render_mode is not None:
            # Imported here, because most environments are never rendered and matplotlib is slow to import.
            from covey.environment.render import Camera

            self._camera = Camera(rounds, penalty, window=render_mode == "human")

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Observations of an agent: its features of all users, flattened user by user, (U F,) float32."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Actions of an agent: the number of a subset, or one bit per user."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Start an episode on the layout of `seed`; without a seed, on the next layout of the last seed's sequence.

        Equal seeds give the layouts of `covey.simulate`. `options={"layout": number}` plays that layout and does not
        advance the sequence.
        """
        layout = self._next_layout(seed, options or {})
        self.rounds.reset([layout])
        self.agents = list(self.possible_agents)
        if self._camera is not None:
            self._camera.start()
        return self._see(dict.fromkeys(INFO_KEYS, 0.0), np.zeros(len(self.agents)))

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Play a round: observations, rewards, terminations (never), truncations (in the last round) and infos."""
        if not self.agents:
            raise ValueError("no episode is being played; call reset first")
        missing = [agent for agent in self.agents if agent not in actions]
        if missing:
            raise PolicyError(f"there is no action for {', '.join(missing)}; give one for every agent in env.agents")
        selected, samples = self._selection(actions), self.rounds.observation.samples
        if self._camera is not None:
            self._camera.aim()
        outcome = self.rounds.step(selected[None])
        if self._camera is not None:
            self._camera.shoot(outcome)
        gained = rewards(outcome, samples, self.rounds.scenario.reward, self._penalty)
        over = self.rounds.done
        observations, infos = self._see(_numbers(outcome, gained), gained.station_violations[0])
        shares = dict(zip(self.agents, gained.stations[0].tolist(), strict=True))
        terminated, truncated = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, over)
        if over:
            self.agents = []
        return observations, shares, terminated, truncated, infos

    def state(self) -> Features:
        """(U K + U B + 1,) float32: announced tasks one-hot, all distances, the share of rounds played."""
        return np.asarray(state_vector(self.rounds.observation)[0].clip(0.0, 1.0))

    def render(self) -> NDArray[np.uint8] | None:
        """The map of the last round, or of the start: (H, W, 3) pixels, or None in `human` mode."""
        if self._camera is None:
            raise ValueError("render_mode is None; make the environment with render_mode='rgb_array' or 'human'")
        # In `human` mode every step has already shown its round.
        return self._camera.pixels() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Close the window and end the processes of real rounds; idempotent."""
        self.agents = []
        if self._camera is not None:
            self._camera.close()
        if isinstance(self.rounds, RealRounds):
            self.rounds.close()

    def _next_layout(self, seed: int | None, options: dict[str, Any]) -> int:
        if seed is not None:
            self._seed, self._drawn = _whole_number("seed", seed), 0
        if "layout" in options:
            return _whole_number("layout", options["layout"])
        if seed is not None:
            return self._whole_seed()
        self._drawn += 1
        # Every draw of a sequence has its own RNG stream; round 0 of this purpose is the layout of the seed itself.
        rng = generator(self._whole_seed(), "placement", round=self._drawn)
        return int(rng.integers(*_DRAWN_LAYOUTS))

    def _whole_seed(self) -> int:
        """The seed of the sequence of layouts; drawn from OS entropy if none was given."""
        if self._seed is None:
            self._seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        return self._seed

    def _selection(self, actions: dict[str, Any]) -> BoolArray:
        """(B, U): the users that the agents' actions select."""
        limits = self.rounds.limits
        if self._binary:
            return validated_selection([actions[agent] for agent in self.agents], limits.users, limits.stations)
        table = subsets(limits.users, limits.radio.blocks)
        try:
            numbers = [operator.index(actions[agent]) for agent in self.agents]
        except TypeError:
            raise PolicyError("an action is not a whole number; actions are the numbers of subsets") from None
        wrong = [number for number in numbers if not 0 <= number < len(table)]
        if wrong:
            raise PolicyError(f"an action is {wrong[0]}; the subsets are numbered 0 to {len(table) - 1}")
        return np.asarray(table[numbers])

    def _see(
        self, numbers: dict[str, float], station_violations: NDArray[np.float64]
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Observations and infos of all agents."""
        observation, limits = self.rounds.observation, self.rounds.limits
        seen = features(observation, self._features)[0].reshape(limits.stations, -1)
        seen = np.minimum(np.maximum(seen, self._low), self._high)
        eligible = observation.eligible[0]
        masks: ActionMask = (eligible if self._binary else allowed(eligible, limits.radio.blocks)).view(np.int8)
        observations: dict[str, Any] = {}
        infos: dict[str, dict[str, Any]] = {}
        for b, agent in enumerate(self.possible_agents):
            observations[agent], infos[agent] = seen[b], dict(numbers)
            infos[agent]["station_violations"] = float(station_violations[b])
            if self._mask_in_obs:
                observations[agent] = {"observations": seen[b], "action_mask": masks[b]}
            else:
                infos[agent]["action_mask"] = masks[b]
        return observations, infos


def _numbers(outcome: Outcome, gained: Rewards) -> dict[str, float]:
    """Metrics of the round, by INFO_KEYS."""
    values = {
        "team_reward": gained.team,
        "reward_without_penalty": gained.without_penalty,
        "penalty": gained.penalty,
        "cost_before": gained.cost_before,
        "cost": gained.cost,
        "leakage_cost": gained.leakage_cost,
        "served": outcome.served,
        "violators": gained.violators,
    }
    kinds = {kind: float(np.count_nonzero(outcome.kinds[kind][0])) for kind in VIOLATION_KINDS}
    return {name: float(value[0]) for name, value in values.items()} | kinds


def _bounds(kind: FeatureSet, limits: NetworkLimits) -> tuple[Features, Features]:
    """Smallest and largest value of every feature of every user, (U F,) each; 0 and 1 but for a few of `full`."""
    other = {
        "margin": (-6.0, 6.0),
        "samples": (0.0, limits.users),
        "task_users": (0.0, limits.tasks),
        "task_samples": (0.0, limits.tasks),
        "slots": (0.0, 4.0),
    }
    ranges = np.array([other.get(name, (0.0, 1.0)) for name in feature_names(kind, limits.tasks)], dtype=np.float32)
    return np.tile(ranges[:, 0], limits.users), np.tile(ranges[:, 1], limits.users)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ScenarioError(f"{name} is {value!r}; it is one of {', '.join(map(repr, choices))}")


def _whole_number(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ScenarioError(f"the {name} is {value!r}; it is a whole number from 0")
    return number
