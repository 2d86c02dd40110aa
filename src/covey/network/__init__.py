"""The network in one round: its limits, the observation of its stations, and plans of which users are served.

Arrays of an observation or a plan may have any leading axes: none for one network, one of length N for a batch. The
same functions handle both, like NumPy's generalised ufuncs.
"""

from covey.network.limits import NetworkLimits, RadioLimits, capability, min_sinr, model_bits, with_fresh
from covey.network.observation import Observation
from covey.network.plan import VIOLATION_KINDS, Plan

__all__ = [
    "VIOLATION_KINDS",
    "NetworkLimits",
    "Observation",
    "Plan",
    "RadioLimits",
    "capability",
    "min_sinr",
    "model_bits",
    "with_fresh",
]
