"""`privacy.target_epsilon`: a scenario whose noise cap follows from the epsilon it should end with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from covey.errors import ScenarioError
from covey.federated import LocalTraining, build_training
from covey.identification import Rule, ScoreRule, build_rule
from covey.privacy.target import v_max_for
from covey.scenario import Scenario
from covey.simulation.world import clipping_norms


def with_target(
    scenario: Scenario,
    samples: NDArray[np.int64],
    *,
    rounds: int | None = None,
    training: LocalTraining | None = None,
    rule: Rule | None = None,
) -> Scenario:
    """The scenario with the `privacy.v_max` that meets its target for users with `samples` (U,); as it is without one.

    rounds: planned rounds, `training.rounds` where not given.
    """
    privacy = scenario.privacy
    if privacy.target_epsilon is None:
        return scenario
    if privacy.noise == "off":
        raise ScenarioError(
            f"privacy.target_epsilon is {privacy.target_epsilon:g}, but privacy.noise is 'off', so that no epsilon"
            " holds; set privacy.noise to 'replay' or 'secure', or leave the target out"
        )
    # Whatever the noise, parts are the same.
    part = training or build_training(scenario)[0]
    ruled, planned = rule or build_rule(scenario), rounds or scenario.training.rounds
    clip = clipping_norms(scenario, samples)
    cap = v_max_for(
        privacy.target_epsilon,
        samples=samples,
        n_min=privacy.n_min,
        delta=privacy.delta,
        adjacency=privacy.adjacency,
        unit=privacy.unit,
        uploads=planned * (1 + ruled.uploads),
        announced_rho=announced_rho(ruled, planned),
        releases=lambda std: part.releases(clip, std, samples),
    )
    return scenario.model_copy(update={"privacy": privacy.model_copy(update={"v_max": cap})})


def announced_rho(rule: Rule, rounds: int) -> float:
    """Total rho of the announcements of a user in `rounds` rounds; those of the first round are drawn and free."""
    each = rule.announcement.rho if isinstance(rule, ScoreRule) else 0.0
    return each * sum(rule.announces(number) for number in range(1, rounds)) if each > 0.0 else 0.0
