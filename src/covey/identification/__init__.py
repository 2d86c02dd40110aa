"""How users find their task: rules, announcements and measures, one file each."""

from covey.identification.announcement import Announcement
from covey.identification.measures import adjusted_rand_index, clustering_accuracy, matching
from covey.identification.rule import (
    Identification,
    Offer,
    Regrouped,
    Rule,
    RuleRound,
    ScoreRule,
    Trained,
    best_score,
    build_rule,
    random_identities,
)

__all__ = [
    "Announcement",
    "Identification",
    "Offer",
    "Regrouped",
    "Rule",
    "RuleRound",
    "ScoreRule",
    "Trained",
    "adjusted_rand_index",
    "best_score",
    "build_rule",
    "clustering_accuracy",
    "matching",
    "random_identities",
]
