"""Personal models: one that a device trains for itself, or one that it keeps of what it uploads."""

from covey.federated.personal.build import build_training
from covey.federated.personal.ditto import Ditto
from covey.federated.personal.mr_mtl import MrMtl
from covey.federated.personal.protocol import NoPersonal, Personal, PersonalProblem

__all__ = ["Ditto", "MrMtl", "NoPersonal", "Personal", "PersonalProblem", "build_training"]
