"""Aggregation: new models from the accepted uploads."""

from covey.federated.aggregation.mean import Mean, aggregate_models
from covey.federated.aggregation.protocol import Accepted, Aggregation

__all__ = ["Accepted", "Aggregation", "Mean", "aggregate_models"]
