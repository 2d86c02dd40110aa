"""Policies by name.

A policy is a part: a callable `(Observation, numpy Generator) -> (B, U) bool`, a class whose objects are such callables
and need no arguments, or an object with state, which is copied. Every run gets a fresh one. A policy whose time grows
steeply with the network says so in an attribute `quick_up_to`, the number of users up to which it answers in a second
or so; it is then left out where many decisions or a live page wait for it.
"""

from __future__ import annotations

import copy

from covey.association.selection import Policy
from covey.errors import PolicyError
from covey.parts import ALGORITHMS, POLICIES


def register_policy(name: str, policy: Policy) -> None:
    """Make `policy` available under `name`."""
    POLICIES.register(name, policy)


def get_policy(name: str) -> Policy:
    """The policy of this name or `module:attribute`, with a memory of its own where it keeps one."""
    if name in ALGORITHMS and name not in POLICIES.names:
        raise PolicyError(
            f"the policy '{name}' is trained for a scenario; get it with covey.learned_policy('{name}', scenario), or"
            f" choose one of {', '.join(POLICIES.names)}"
        )
    part = POLICIES.get(name)
    if isinstance(part, type):
        part = POLICIES.build(name)
    if not callable(part):
        raise POLICIES.refused(name, f"is {part!r}, which cannot be called")
    # Functions copy to themselves; a policy with state starts fresh in every run.
    policy: Policy = copy.deepcopy(part)
    return policy


def quick_up_to(policy: Policy) -> int | None:
    """The number of users up to which a policy is quick; None when it is quick for any number."""
    most: int | None = getattr(policy, "quick_up_to", None)
    return most


def quick_policies(users: int | None = None) -> list[str]:
    """Names of all registered policies that are quick in a network of this many users, or in any, in their order."""
    limits = {name: quick_up_to(get_policy(name)) for name in POLICIES.names}
    return [name for name, most in limits.items() if most is None or (users is not None and users <= most)]
