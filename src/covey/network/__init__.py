"""The network as a round finds it: its limits, what its stations observe, and plans of who is served where.

Arrays of an observation or a plan may have any leading axes: none for one network, one of length N for a batch. One
function serves both, as with NumPy's generalised universal functions.
"""

from covey.network.limits import NetworkLimits, RadioLimits, capability, min_sinr, model_bits
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
]
