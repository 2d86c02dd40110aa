"""Reference policies that decide which station serves which users."""

from covey.association.exact_policy import ExactPolicy, ExactRecord
from covey.association.policies import coverage, greedy, nearest, random
from covey.association.registry import get_policy, made_policy, quick_policies, quick_up_to, register_policy
from covey.association.search import local_search
from covey.association.selection import Policy, Remembering, forgets, memory_of, validated_selection

__all__ = [
    "ExactPolicy",
    "ExactRecord",
    "Policy",
    "Remembering",
    "coverage",
    "forgets",
    "get_policy",
    "greedy",
    "local_search",
    "made_policy",
    "memory_of",
    "nearest",
    "quick_policies",
    "quick_up_to",
    "random",
    "register_policy",
    "validated_selection",
]
