"""Local training: from the model a user received to the one it uploads."""

from covey.federated.training.protocol import LocalProblem, LocalTraining, least_noise
from covey.federated.training.sgd import Sgd
from covey.federated.training.step import Step

__all__ = ["LocalProblem", "LocalTraining", "Sgd", "Step", "least_noise"]
