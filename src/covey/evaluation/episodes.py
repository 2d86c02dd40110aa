"""Pieces of a comparison: one policy on a few layouts, computed anywhere, kept in a store, and not computed again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.agents.policy import LearnedPolicy
from covey.association import ExactPolicy, Policy
from covey.environment import Calibration, Learning, Rounds, rewards, vector_env
from covey.federated import one_thread
from covey.jobs import Pool, Store, digest, identity, in_order, key_of, results, scenario_digest
from covey.network import Observation
from covey.scenario import Scenario
from covey.seeding import generator

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EpisodeResult:
    """What a policy earned: `values` by name, one per layout each; bytes of every decision; seconds of one decision."""

    values: dict[str, list[float]]
    exchanged: list[int]
    seconds: float


@dataclass(frozen=True)
class EpisodeJob:
    """A policy on a few layouts; `together` networks are played side by side, the surplus is dropped."""

    name: str
    policy: Policy
    seeds: tuple[int, ...]
    scenario: Scenario
    learning: Learning
    calibration: Calibration | None
    together: int

    @property
    def kind(self) -> str:
        """What a store calls such a job."""
        return "episodes"

    @property
    def label(self) -> str:
        """The policy and its first layout."""
        return f"{self.name} from {self.seeds[0]}"

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything that the result depends on, apart from versions; the policy as it is when this is first asked."""
        return {
            "scenario": scenario_digest(self.scenario),
            "learning": self.learning,
            "surrogate": None if self.calibration is None else digest(self.calibration.constants.to_dict()),
            "seeds": list(self.seeds),
            "together": self.together,
            "policy": policy_identity(self.policy),
        }

    @cached_property
    def key(self) -> str:
        """Under which a store finds the result."""
        return key_of(self.kind, self.content)


class Player:
    """Plays pieces that differ in policy and layouts only; to be closed."""

    def __init__(self, piece: EpisodeJob) -> None:
        self._rounds: Rounds = vector_env(
            piece.scenario, piece.together, learning=piece.learning, calibration=piece.calibration
        )

    def play(self, piece: EpisodeJob) -> EpisodeResult:
        """The result of a piece."""
        rounds, policy = self._rounds, piece.policy
        before = len(policy.exchanged) if isinstance(policy, LearnedPolicy) else 0
        seeds = [*piece.seeds, *piece.seeds[:1] * (piece.together - len(piece.seeds))]
        totals, seconds = _play(rounds, piece.scenario, policy, seeds)
        values = {
            name: np.asarray(total, dtype=np.float64)[: len(piece.seeds)].tolist() for name, total in totals.items()
        }
        exchanged = policy.exchanged[before:] if isinstance(policy, LearnedPolicy) else []
        return EpisodeResult(values, [int(size) for size in exchanged], seconds)

    def close(self) -> None:
        """Free what real rounds hold."""
        if hasattr(self._rounds, "close"):
            self._rounds.close()


def play_job(piece: EpisodeJob) -> EpisodeResult:
    """The result of a piece, with everything that it needs made for it."""
    player = Player(piece)
    try:
        return player.play(piece)
    finally:
        player.close()


def play_jobs(
    pieces: Sequence[EpisodeJob], pool: Pool | None, kept: Store | None
) -> Iterator[tuple[int, EpisodeResult]]:
    """Index and result of every piece, in the order in which they are finished; those in `kept` first."""
    waiting = []
    for index, piece in enumerate(pieces):
        found = None if kept is None else kept.find(piece)
        if found is None:
            waiting.append(index)
        else:
            yield index, EpisodeResult(**found.values)
    for index, played in _computed(pieces, waiting, pool):
        if kept is not None:
            kept.keep(pieces[index], asdict(played))
        yield index, played


def _computed(
    pieces: Sequence[EpisodeJob], indices: list[int], pool: Pool | None
) -> Iterator[tuple[int, EpisodeResult]]:
    if not indices:
        return
    if pool is not None:
        yield from results(pool, in_order((index, play_job, (pieces[index],)) for index in indices))
        return
    player = Player(pieces[indices[0]])
    try:
        for index in indices:
            with one_thread():  # as in a pool
                played = player.play(pieces[index])
            yield index, played
    finally:
        player.close()


def policy_identity(policy: Policy) -> Any:
    """What tells a policy from others: the weights and settings of a trained one, the code and state of any other."""
    if isinstance(policy, ExactPolicy):
        return identity(replace(policy, record=[]))  # what it remembers decides nothing
    if not isinstance(policy, LearnedPolicy):
        return identity(policy)
    weights = hashlib.sha256()
    for name, tensor in sorted(policy.weights[policy.way].items()):
        weights.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return [policy.way, policy.settings.model_dump(mode="json"), weights.hexdigest()]


def _play(rounds: Rounds, scenario: Scenario, policy: Policy, seeds: list[int]) -> tuple[dict[str, Any], float]:
    """Values of an episode by name, one per layout, and the seconds of one decision."""
    observation = rounds.reset(seeds)
    totals: dict[str, Any] = {}
    seconds = 0.0
    while not rounds.done:
        started = time.perf_counter()
        selected = _choose(policy, observation, seeds)
        seconds += time.perf_counter() - started
        outcome = rounds.step(selected)
        gained = rewards(outcome, observation.samples, scenario.reward)
        values = {
            "reward": gained.team,
            "without_penalty": gained.without_penalty,
            "violators": gained.violators,
            "served": outcome.served / rounds.limits.rounds,
            **{f"kind.{kind}": flags.sum(axis=1).astype(np.float64) for kind, flags in outcome.kinds.items()},
        }
        totals = {key: totals.get(key, 0.0) + value for key, value in values.items()}
        final_loss = (observation.samples * outcome.loss).sum(axis=1) / observation.samples.sum(axis=1)
        observation = rounds.observation
    return totals | {"final_loss": final_loss}, seconds / (rounds.limits.rounds * len(seeds))


def _choose(policy: Policy, observation: Observation, seeds: list[int]) -> NDArray[np.bool_]:
    if isinstance(policy, LearnedPolicy):
        return policy.select(observation)
    chosen = [
        policy(observation[index], generator(seed, "policy", round=observation.round))
        for index, seed in enumerate(seeds)
    ]
    return np.stack(chosen)
