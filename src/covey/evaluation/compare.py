"""Compares the rewards of several policies on the same layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.association import ExactPolicy, Policy, get_policy, quick_policies
from covey.environment import Calibration, Learning, calibration_for
from covey.errors import PolicyError
from covey.evaluation.episodes import EpisodeJob, EpisodeResult, play_jobs
from covey.evaluation.statistics import Estimate, interquartile_mean, mean_interval
from covey.jobs import Pool, Store
from covey.scenario import Scenario

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """Results of one policy on every layout, (n,) each.

    reward: accumulated reward (27); without_penalty: the same without penalties; violators: violating users, by kind in
    `kinds`; served: users per round; final_loss: sample-weighted loss after the last round; decision_ms: milliseconds
    per decision of all stations; bytes: exchanged between stations per decision.
    """

    policy: str
    reward: Floats
    without_penalty: Floats
    violators: Floats
    kinds: dict[str, Floats]
    served: Floats
    final_loss: Floats
    decision_ms: float
    bytes: float


@dataclass(frozen=True)
class Comparison:
    """Results of all policies on the same layouts."""

    scenario: str
    learning: Learning
    seeds: tuple[int, ...]
    results: tuple[Result, ...]

    def __getitem__(self, policy: str) -> Result:
        """The result of one policy."""
        for result in self.results:
            if result.policy == policy:
                return result
        raise KeyError(policy)

    def difference(self, policy: str, reference: str) -> Estimate:
        """How much more reward `policy` earned than `reference`: mean of the paired differences over layouts."""
        return mean_interval(self[policy].reward - self[reference].reward)

    def relative(self, policy: str, reference: str) -> Estimate:
        """The same, in per cent of the reference's mean reward."""
        scale = 100.0 / abs(float(self[reference].reward.mean()))
        return mean_interval(scale * (self[policy].reward - self[reference].reward))

    def to_dict(self) -> dict[str, Any]:
        """JSON-serialisable: estimates per policy, paired differences, and the values of every layout."""
        names = [result.policy for result in self.results]
        return {
            "scenario": self.scenario,
            "learning": self.learning,
            "layouts": list(self.seeds),
            "policies": {result.policy: _summary(result) for result in self.results},
            "paired_differences": {
                name: {other: self.difference(name, other).to_dict() for other in names if other != name}
                for name in names
            },
            "values": {
                result.policy: {
                    "reward": result.reward.tolist(),
                    "reward_without_penalty": result.without_penalty.tolist(),
                    "violators": result.violators.tolist(),
                }
                for result in self.results
            },
        }


def _summary(result: Result) -> dict[str, Any]:
    return {
        "reward": mean_interval(result.reward).to_dict(),
        "reward_iqm": interquartile_mean(result.reward).to_dict(),
        "reward_without_penalty": mean_interval(result.without_penalty).to_dict(),
        "violators_per_episode": mean_interval(result.violators).to_dict(),
        "violations_by_kind": {kind: float(total.mean()) for kind, total in result.kinds.items()},
        "served_per_round": mean_interval(result.served).to_dict(),
        "final_loss": mean_interval(result.final_loss).to_dict(),
        "decision_ms": result.decision_ms,
        "exchanged_bytes_per_decision": result.bytes,
    }


def default_policies(scenario: Scenario) -> dict[str, Policy]:
    """All registered policies that are fast in this scenario, by name."""
    return {name: get_policy(name) for name in quick_policies(scenario.network.users)}


def compare(
    scenario: Scenario,
    policies: Mapping[str, Policy],
    seeds: Sequence[int],
    *,
    learning: Learning = "surrogate",
    calibration: Calibration | None = None,
    on_layout: Callable[[str, int], None] | None = None,
    together: int = 64,
    pool: Pool | None = None,
    kept: Store | None = None,
) -> Comparison:
    """Results of every policy on every layout (one per seed).

    `on_layout(policy, layouts done)` reports progress. `pool` runs jobs (a policy on up to `together` layouts of
    the surrogate, or on one layout of real rounds) in parallel; only times depend on it. `kept` caches finished jobs,
    which are not computed again while scenario, policy and versions are the same.
    """
    if not seeds:
        raise PolicyError("there are no layouts to compare on; give at least one seed")
    count = 1 if learning == "real" else min(together, len(seeds))
    if calibration is None and learning == "surrogate":
        calibration = calibration_for(scenario)
    groups = [tuple(seeds[start : start + count]) for start in range(0, len(seeds), count)]
    jobs = [
        EpisodeJob(name, policy, group, scenario, learning, calibration, count)
        for name, policy in policies.items()
        for group in groups
    ]
    found: dict[int, EpisodeResult] = {}
    for index, played in play_jobs(jobs, pool, kept):
        found[index] = played
        job = jobs[index]
        if on_layout is not None:
            done = sum(len(jobs[other].seeds) for other in found if jobs[other].name == job.name)
            on_layout(job.name, done)
    results = []
    for position, name in enumerate(policies):
        first = position * len(groups)
        results.append(_result(name, [found[first + offset] for offset in range(len(groups))]))
    return Comparison(scenario.name, learning, tuple(seeds), tuple(results))


def _result(name: str, parts: Sequence[EpisodeResult]) -> Result:
    def column(key: str) -> Floats:
        return np.concatenate([np.array(part.values[key], dtype=np.float64) for part in parts])

    kinds = [key for key in parts[0].values if key.startswith("kind.")]
    exchanged = [size for part in parts for size in part.exchanged]
    return Result(
        policy=name,
        reward=column("reward"),
        without_penalty=column("without_penalty"),
        violators=column("violators"),
        kinds={key.removeprefix("kind."): column(key) for key in kinds},
        served=column("served"),
        final_loss=column("final_loss"),
        decision_ms=1e3 * float(np.mean([part.seconds for part in parts])),
        bytes=float(np.mean(exchanged)) if exchanged else 0.0,
    )


def exact_gap(policy: ExactPolicy) -> float:
    """Optimality gap of the exact policy's selections, as a share of the samples."""
    return 1.0 - sum(r.selected for r in policy.record) / max(sum(r.objective for r in policy.record), 1.0)
