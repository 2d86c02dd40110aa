"""Personal models: one that a device trains for itself, and that never leaves it."""

from covey.federated.personal.ditto import Ditto
from covey.federated.personal.protocol import NoPersonal, Personal, PersonalProblem

__all__ = ["Ditto", "NoPersonal", "Personal", "PersonalProblem"]
