"""Local training: from the model a user received to the one it uploads."""

from covey.federated.training.protocol import LocalProblem, LocalTraining, least_noise
from covey.federated.training.step import Step

__all__ = ["LocalProblem", "LocalTraining", "Step", "least_noise"]
