"""Evaluation of policies: shared held-out layouts, paired differences, confidence intervals."""

from covey.evaluation.central import Central
from covey.evaluation.compare import Comparison, Result, compare, default_policies
from covey.evaluation.statistics import Estimate, interquartile_mean, mean_interval, rank_correlation

__all__ = [
    "Central",
    "Comparison",
    "Estimate",
    "Result",
    "compare",
    "default_policies",
    "interquartile_mean",
    "mean_interval",
    "rank_correlation",
]
