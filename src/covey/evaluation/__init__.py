"""Judging policies: the same held-out layouts for all of them, paired differences, confidence intervals."""

from covey.evaluation.compare import Comparison, Result, compare, default_policies
from covey.evaluation.statistics import Estimate, interquartile_mean, mean_interval, rank_correlation

__all__ = [
    "Comparison",
    "Estimate",
    "Result",
    "compare",
    "default_policies",
    "interquartile_mean",
    "mean_interval",
    "rank_correlation",
]
