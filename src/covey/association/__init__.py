"""Reference policies that decide which station serves which users."""

from covey.association.admission import Admission
from covey.association.exact import ExactPolicy, ExactRecord
from covey.association.observation import Observation, Policy, validated_selection
from covey.association.policies import coverage, greedy, nearest, random
from covey.association.registry import POLICIES, get_policy, register_policy
from covey.association.search import local_search

__all__ = [
    "POLICIES",
    "Admission",
    "ExactPolicy",
    "ExactRecord",
    "Observation",
    "Policy",
    "coverage",
    "get_policy",
    "greedy",
    "local_search",
    "nearest",
    "random",
    "register_policy",
    "validated_selection",
]
