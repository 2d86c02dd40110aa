"""Training loop of a policy: episodes on new layouts, gradient steps, validation, and metrics of every epoch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import numpy as np
import torch

from covey.agents.admission_guard import admit
from covey.agents.learner import Learner, choosable
from covey.agents.networks import Head
from covey.agents.replay import Arrays, Replay
from covey.agents.settings import LearnerSettings
from covey.environment import (
    Calibration,
    Learning,
    Outcome,
    Rewards,
    Rounds,
    SurrogateRounds,
    calibration_for,
    features,
    rewards,
    state_vector,
    vector_env,
)
from covey.network import Observation
from covey.scenario import Scenario
from covey.seeding import generator

#: First layout seeds of training and validation; all smaller seeds are held out.
TRAINING_SEEDS, VALIDATION_SEEDS = 2**40, 2**39
#: Decision modes of a trained policy: every station by itself, or through the admission guard.
WAYS = ("alone", "guarded")
#: Grid of every validation: multiples of the price of a violation, and minimal gains of a further user.
TRIED: dict[str, tuple[float, ...]] = {"alone": (0.3, 1.0, 3.0), "guarded": (0.0, 0.3, 1.0, 1e9)}


@dataclass
class Episode:
    """Totals of one episode in N networks, (N,) each; kinds: violating users by kind."""

    reward: np.ndarray[Any, np.dtype[np.float64]]
    without_penalty: np.ndarray[Any, np.dtype[np.float64]]
    violators: np.ndarray[Any, np.dtype[np.float64]]
    violating_rounds: np.ndarray[Any, np.dtype[np.float64]]
    served: np.ndarray[Any, np.dtype[np.float64]]
    kinds: dict[str, np.ndarray[Any, np.dtype[np.float64]]]


class Trainer:
    """A training that runs epoch by epoch and can be saved and resumed.

    `rows` holds one dictionary per finished epoch, `best` the weights of the best validation so far, by decision mode.
    """

    def __init__(
        self,
        scenario: Scenario,
        settings: LearnerSettings,
        *,
        seed: int = 0,
        learning: Learning = "surrogate",
        calibration: Calibration | None = None,
    ) -> None:
        torch.set_num_threads(1)
        self.scenario, self.settings, self.seed, self.learning = scenario, settings, seed, learning
        if calibration is None and learning == "surrogate":
            calibration = calibration_for(scenario)
        self.calibration = calibration
        self.rounds = vector_env(scenario, settings.networks, learning=learning, calibration=calibration)
        self.validation = vector_env(scenario, settings.validation, learning=learning, calibration=calibration)
        limits = self.rounds.limits
        state_size = limits.users * (limits.tasks + limits.stations) + 1
        self.learner = Learner(limits, settings, seed, state_size, scenario.reward.penalty)
        #: Returns the marginal gains of the last round, where they are learned from and the rounds provide them.
        self._marginal_gains = self.rounds.marginal_gains if _has_gains(self.rounds) and settings.marginal else None
        self.replay: Replay | None = None
        self.epoch = 0
        self.rows: list[dict[str, Any]] = []
        #: By decision mode, alone and guarded: the best validation reward and its weights.
        self.best_score = dict.fromkeys(WAYS, -np.inf)
        self.best: dict[str, dict[str, torch.Tensor]] = {}

    @property
    def done(self) -> bool:
        """Whether all epochs are finished."""
        return self.epoch >= self.settings.epochs

    @property
    def epsilon(self) -> float:
        """Share of exploratory actions in the current epoch."""
        settings = self.settings
        share = min(1.0, self.epoch / max(settings.epsilon_share * settings.epochs, 1.0))
        return settings.epsilon_start + share * (settings.epsilon_end - settings.epsilon_start)

    def run_epoch(self) -> dict[str, Any]:
        """Play one episode in every network and learn from it; returns the epoch's metrics."""
        settings = self.settings
        epsilon = self.epsilon
        rng = generator(self.seed, "exploration", round=self.epoch)
        seeds = [
            TRAINING_SEEDS * (1 + self.seed) + self.epoch * settings.networks + n for n in range(settings.networks)
        ]
        episode, rows = self._play(self.rounds, seeds, epsilon, rng)
        if self.replay is None:
            self.replay = Replay(settings.replay or len(rows["done"]), rows)
        if settings.replay == 0:
            self.replay.clear()
        self.replay.add(rows)
        loss = self._learn()
        row: dict[str, Any] = {"epoch": self.epoch + 1, "epsilon": epsilon, "loss": loss, **_means(episode)}
        self.epoch += 1
        if self.epoch % settings.validate_every == 0 or self.done:
            row |= self._validate()
        else:
            row |= dict.fromkeys(VALIDATION_COLUMNS, float("nan"))
        self.rows.append(row)
        return row

    def _play(
        self, rounds: Rounds, seeds: Sequence[int], epsilon: float, rng: np.random.Generator
    ) -> tuple[Episode, Arrays]:
        settings = self.settings
        guarded = round(settings.guarded_share * settings.networks)
        observation = rounds.reset(seeds)
        totals = _Totals(len(seeds))
        parts: list[Arrays] = []
        earned: list[Rewards] = []
        seen = self._see(observation)
        while not rounds.done:
            selected, first = self.learner.act(
                observation, seen["features"], seen["eligible"], seen["choosable"], epsilon, guarded, rng
            )
            outcome = rounds.step(selected)
            gained = rewards(outcome, observation.samples, self.scenario.reward, settings.penalty)
            scored = rewards(outcome, observation.samples, self.scenario.reward)
            totals.add(scored, outcome)
            earned.append(gained)
            observation = rounds.observation
            following = self._see(observation)
            part: Arrays = {
                **seen,
                "selected": selected,
                "first": first,
                "alone": np.arange(len(seeds)) >= guarded,
                "done": np.full(len(seeds), rounds.done),
            }
            if settings.discount > 0.0:
                part |= {f"next_{name}": array for name, array in following.items()}
            if self._marginal_gains is not None:
                part["marginal"], part["sole"] = self._marginal_gains(self.scenario.reward)
            parts.append(part)
            seen = following
        for index, gained in enumerate(earned):
            # The cost before the next round; after the last round, the cost after it.
            cost = earned[index + 1].cost_before if index + 1 < len(earned) else gained.cost
            parts[index] |= self.learner.rows(gained, cost, index, parts[index].get("marginal"))
        return totals.episode(rounds.limits.rounds), {
            name: np.concatenate([p[name] for p in parts]) for name in parts[0]
        }

    def _see(self, observation: Observation) -> Arrays:
        return {
            "features": features(observation, self.settings.features),
            "choosable": choosable(observation, self.settings),
            "eligible": observation.eligible,
            "state": state_vector(observation),
        }

    def _learn(self) -> float:
        assert self.replay is not None
        settings = self.settings
        rng = generator(self.seed, "replay", round=self.epoch)
        rate = settings.learning_rate * (1.0 - 0.9 * self.epoch / settings.epochs)
        losses = [self.learner.update(self.replay.sample(settings.batch, rng), rate) for _ in range(settings.updates)]
        return float(np.mean(losses)) if losses else float("nan")

    def _validate(self) -> dict[str, float]:
        """Reward on validation layouts in both decision modes, with the best of a few prices and cautions.

        Estimated gains are noisy, and selecting every positive estimate also selects overestimated ones: the minimal
        gain of a further user and the price of a violation are tuned here. The criterion is the reward with the
        progressive penalty, whatever reward was learned from.
        """
        row: dict[str, float] = {}
        module = copy.deepcopy(self.learner.target["head"])
        head = cast(Head, module)
        price = head.price.clone()
        for way, factors in TRIED.items():
            tried = []
            for factor in factors:
                head.price.copy_(price * (factor if way == "alone" else 1.0))
                head.caution.fill_(factor if way == "guarded" else 0.0)
                episode = self._episode(head, guarded=way == "guarded")
                tried.append((float(episode.reward.mean()), float(episode.violators.mean()), factor))
                if tried[-1][0] > self.best_score[way]:
                    self.best_score[way] = tried[-1][0]
                    self.best[way] = {key: tensor.clone() for key, tensor in module.state_dict().items()}
            row[f"{way}_reward"], violators, _ = max(tried)
            row[f"{way}_violators"] = violators / self.validation.limits.rounds
        return row

    def _episode(self, head: Head, *, guarded: bool) -> Episode:
        seeds = [VALIDATION_SEEDS + n for n in range(self.settings.validation)]
        return evaluate_head(head, self.settings, self.validation, self.scenario, seeds, guarded=guarded)


def _has_gains(rounds: Rounds) -> TypeGuard[SurrogateRounds]:
    return isinstance(rounds, SurrogateRounds)


#: Columns that are filled only in epochs with a validation.
VALIDATION_COLUMNS = ("alone_reward", "alone_violators", "guarded_reward", "guarded_violators")


def evaluate_head(
    head: Head, settings: LearnerSettings, rounds: Rounds, scenario: Scenario, seeds: Sequence[int], *, guarded: bool
) -> Episode:
    """Play one episode without exploration in every network."""
    observation = rounds.reset(seeds)
    totals = _Totals(len(seeds))
    while not rounds.done:
        with torch.no_grad():
            inputs = torch.from_numpy(features(observation, settings.features))
            if guarded:
                wanted = head.utilities(inputs, torch.from_numpy(observation.eligible))
                first, further = (part.numpy().astype(np.float64) for part in wanted)
                selected = admit(first, further, observation)
            else:
                allowed = torch.from_numpy(choosable(observation, settings))
                selected = np.array(head.best(inputs, allowed).numpy(), dtype=bool)
        outcome = rounds.step(selected)
        totals.add(rewards(outcome, observation.samples, scenario.reward), outcome)
        observation = rounds.observation
    return totals.episode(rounds.limits.rounds)


class _Totals:
    """Sums over the rounds of an episode."""

    def __init__(self, count: int) -> None:
        self._sums: dict[str, Any] = dict.fromkeys(("reward", "without", "violators", "violating", "served"), 0.0)
        self._kinds: dict[str, Any] = {}
        self._count = count

    def add(self, gained: Rewards, outcome: Outcome) -> None:
        sums = self._sums
        sums["reward"] = sums["reward"] + gained.team
        sums["without"] = sums["without"] + gained.without_penalty
        sums["violators"] = sums["violators"] + gained.violators
        sums["violating"] = sums["violating"] + (gained.violators > 0)
        sums["served"] = sums["served"] + outcome.served
        for kind, flags in outcome.kinds.items():
            self._kinds[kind] = self._kinds.get(kind, 0.0) + flags.sum(axis=1)

    def episode(self, rounds: int) -> Episode:
        sums = self._sums
        return Episode(
            reward=sums["reward"],
            without_penalty=sums["without"],
            violators=np.asarray(sums["violators"], dtype=np.float64),
            violating_rounds=np.asarray(sums["violating"], dtype=np.float64) / rounds,
            served=np.asarray(sums["served"], dtype=np.float64) / rounds,
            kinds={kind: np.asarray(total, dtype=np.float64) for kind, total in self._kinds.items()},
        )


def _means(episode: Episode) -> dict[str, float]:
    return {
        "reward": float(episode.reward.mean()),
        "reward_std": float(episode.reward.std()),
        "reward_without_penalty": float(episode.without_penalty.mean()),
        "violators": float(episode.violators.mean()),
        "violating_rounds": float(episode.violating_rounds.mean()),
        "served": float(episode.served.mean()),
        **{kind: float(total.mean()) for kind, total in episode.kinds.items()},
    }
