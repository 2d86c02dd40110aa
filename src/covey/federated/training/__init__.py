"""Local training: what a user does between the model that it received and the one that it uploads."""

from covey.federated.training.protocol import LocalProblem, LocalTraining
from covey.federated.training.step import Step

__all__ = ["LocalProblem", "LocalTraining", "Step"]
