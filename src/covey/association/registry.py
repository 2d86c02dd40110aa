"""Policies by name.

A policy is a part: a callable `(Observation, numpy Generator) -> (B, U) bool`, a class whose objects are such callables
and need no arguments, or an object with state, which is copied. Every run gets a fresh one. A policy whose run time
grows steeply with the network sets an attribute `quick_up_to`, the number of users up to which it takes about a second;
for larger networks it is left out of evaluations with many decisions and of the dashboard.
"""

from __future__ import annotations

import copy
import warnings

from covey.association.selection import Policy
from covey.errors import PartWarning, PolicyError
from covey.part_checks import why_not_callable
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
    if name not in POLICIES.builtin:
        _check(name, part)
    try:
        # Functions copy to themselves; a policy with state starts fresh in every run.
        policy: Policy = copy.deepcopy(part)
    except (Exception, SystemExit) as error:  # copying runs code of the object
        why = f"is an object that cannot be copied for every run ({type(error).__name__}: {error}); give its class"
        raise POLICIES.refused(name, why) from error
    return policy


def made_policy(policy: Policy | type[Policy]) -> Policy:
    """A policy that a program gives: an object or function as it is, a class as a new object of it."""
    if not callable(policy):
        raise PolicyError(
            f"the policy is {policy!r}, which cannot be called; give the name of one, or a function of an Observation"
            " and a numpy Generator that returns (B, U) bool"
        )
    name = getattr(policy, "__name__", type(policy).__name__)
    made: Policy = POLICIES.made(name, policy) if isinstance(policy, type) else policy
    _check(name, made)
    return made


def _check(name: str, policy: object) -> None:
    if why := why_not_callable(policy, 2):
        raise POLICIES.refused(name, why)


def quick_up_to(policy: Policy) -> int | None:
    """The number of users up to which a policy is quick; None when it is quick for any number."""
    most: int | None = getattr(policy, "quick_up_to", None)
    return most


def quick_policies(users: int | None = None) -> list[str]:
    """Names of all policies that are quick with this many users (with any number if None), in registration order."""
    limits: dict[str, int | None] = {}
    for name in POLICIES.names:
        try:
            limits[name] = quick_up_to(get_policy(name))
        except PolicyError as error:
            # One package that is broken must not keep the others from being compared.
            warnings.warn(f"{error}; it is left out", PartWarning, stacklevel=2)
    return [name for name, most in limits.items() if most is None or (users is not None and users <= most)]
