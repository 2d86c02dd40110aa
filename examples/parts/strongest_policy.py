"""A policy in one file: each station selects its strongest users among those whose task it can run.

    covey run quick --policy examples.parts.strongest_policy:strongest
    covey evaluate examples.parts.strongest_policy:strongest quick --against greedy

or, in Python, `covey.simulate("quick", policy="examples.parts.strongest_policy:strongest")`.
"""

from __future__ import annotations

import numpy as np

import covey


def strongest(observation: covey.Observation, rng: np.random.Generator) -> np.ndarray:
    """Selection of each station, (B, U) bool: its strongest users, as many as it has blocks."""
    gains = np.where(observation.eligible, observation.gains.T, 0.0)  # (B, U), linear
    best = gains.argmax(axis=0) == np.arange(len(gains))[:, None]
    own = observation.eligible & best  # each user is selected only by its strongest station
    rank = np.argsort(np.argsort(-np.where(own, gains, 0.0), axis=1, kind="stable"), axis=1)
    return own & (rank < observation.blocks)
