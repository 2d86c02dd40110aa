"""Policies by name."""

from __future__ import annotations

import copy

from covey.association.exact import ExactPolicy
from covey.association.observation import Policy
from covey.association.policies import coverage, greedy, nearest, random
from covey.association.search import local_search
from covey.errors import PolicyError

POLICIES: dict[str, Policy] = {
    "random": random,
    "nearest": nearest,
    "coverage": coverage,
    "greedy": greedy,
    "local_search": local_search,
    "exact": ExactPolicy(),
}


def register_policy(name: str, policy: Policy) -> None:
    """Make `policy` available under `name`."""
    POLICIES[name] = policy


def get_policy(name: str) -> Policy:
    """The policy of this name, with a memory of its own where it keeps one."""
    if name not in POLICIES:
        raise PolicyError(
            f"the policy '{name}' is unknown; choose one of {', '.join(POLICIES)}, or register it with register_policy"
        )
    # Functions copy to themselves; a policy with state starts fresh in every run.
    return copy.deepcopy(POLICIES[name])
