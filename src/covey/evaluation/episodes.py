"""Jobs of a comparison: one policy on a few layouts, run by any pool and cached in a store."""

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
    """Results of an `EpisodeJob`: `values` by name, one per layout; bytes of every decision; seconds per decision."""

    values: dict[str, list[float]]
    exchanged: list[int]
    seconds: float


@dataclass(frozen=True)
class EpisodeJob:
    """A policy on a few layouts; `together` networks are played in lockstep, surplus ones are discarded."""

    name: str
    policy: Policy
    seeds: tuple[int, ...]
    scenario: Scenario
    learning: Learning
    calibration: Calibration | None
    together: int

    @property
    def kind(self) -> str:
        """The kind of job in a store."""
        return "episodes"

    @property
    def label(self) -> str:
        """The policy and its first layout."""
        return f"{self.name} from {self.seeds[0]}"

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything that the result depends on, apart from versions; the policy's state on first access."""
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
        """The cache key of the result."""
        return key_of(self.kind, self.content)


class Player:
    """Plays jobs that differ in policy and layouts only; must be closed."""

    def __init__(self, job: EpisodeJob) -> None:
        self._rounds: Rounds = vector_env(
            job.scenario, job.together, learning=job.learning, calibration=job.calibration
        )

    def play(self, job: EpisodeJob) -> EpisodeResult:
        """Play a job."""
        rounds, policy = self._rounds, job.policy
        before = len(policy.exchanged) if isinstance(policy, LearnedPolicy) else 0
        seeds = [*job.seeds, *job.seeds[:1] * (job.together - len(job.seeds))]
        totals, seconds = _play(rounds, job.scenario, policy, seeds)
        values = {
            name: np.asarray(total, dtype=np.float64)[: len(job.seeds)].tolist() for name, total in totals.items()
        }
        exchanged = policy.exchanged[before:] if isinstance(policy, LearnedPolicy) else []
        return EpisodeResult(values, [int(size) for size in exchanged], seconds)

    def close(self) -> None:
        """End the processes of real rounds."""
        if hasattr(self._rounds, "close"):
            self._rounds.close()


def play_job(job: EpisodeJob) -> EpisodeResult:
    """Play a single job, with a player of its own."""
    player = Player(job)
    try:
        return player.play(job)
    finally:
        player.close()


def play_jobs(jobs: Sequence[EpisodeJob], pool: Pool | None, kept: Store | None) -> Iterator[tuple[int, EpisodeResult]]:
    """Index and result of every job, in order of completion; those cached in `kept` first."""
    waiting = []
    for index, job in enumerate(jobs):
        found = None if kept is None else kept.find(job)
        if found is None:
            waiting.append(index)
        else:
            yield index, EpisodeResult(**found.values)
    for index, played in _computed(jobs, waiting, pool):
        if kept is not None:
            kept.keep(jobs[index], asdict(played))
        yield index, played


def _computed(jobs: Sequence[EpisodeJob], indices: list[int], pool: Pool | None) -> Iterator[tuple[int, EpisodeResult]]:
    if not indices:
        return
    if pool is not None:
        yield from results(pool, in_order((index, play_job, (jobs[index],)) for index in indices))
        return
    player = Player(jobs[indices[0]])
    try:
        for index in indices:
            with one_thread():  # as in a pool
                played = player.play(jobs[index])
            yield index, played
    finally:
        player.close()


def policy_identity(policy: Policy) -> Any:
    """A fingerprint of a policy: weights and settings of a trained one, code and state of any other."""
    if isinstance(policy, ExactPolicy):
        return identity(replace(policy, record=[]))  # its record does not affect decisions
    if not isinstance(policy, LearnedPolicy):
        return identity(policy)
    weights = hashlib.sha256()
    for name, tensor in sorted(policy.weights[policy.way].items()):
        weights.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return [policy.way, policy.settings.model_dump(mode="json"), weights.hexdigest()]


def _play(rounds: Rounds, scenario: Scenario, policy: Policy, seeds: list[int]) -> tuple[dict[str, Any], float]:
    """Values of an episode by name, one per layout, and the seconds per decision."""
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
