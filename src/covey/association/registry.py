"""Policies by name.

A policy is a part: a callable `(Observation, numpy Generator) -> (B, U) bool`, a class whose objects are such callables
and need no arguments, or an object with state, which is copied. Every run gets a fresh one. A policy whose run time
grows steeply with the network sets an attribute `quick_up_to`, the number of users up to which it takes about a second;
for larger networks it is left out of evaluations with many decisions and of the dashboard.
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
    """The policy of this name or `module:attribute`; a stateful policy is copied, so that no state is shared."""
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
    """Names of all policies that are quick with this many users (with any number if None), in registration order."""
    limits = {name: quick_up_to(get_policy(name)) for name in POLICIES.names}
    return [name for name, most in limits.items() if most is None or (users is not None and users <= most)]
