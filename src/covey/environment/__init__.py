"""The association problem as a multi-agent environment."""

from covey.environment.actions import allowed, subset_count, subset_numbers, subsets
from covey.environment.calibration import (
    Calibration,
    calibrate,
    calibration_for,
    calibration_path,
    find_calibration,
    learning_hash,
)
from covey.environment.features import FeatureSet, feature_names, features, state_vector
from covey.environment.parallel import AssociationEnv, Learning, parallel_env, vector_env
from covey.environment.real_rounds import RealRounds
from covey.environment.reward import Outcome, Penalty, Rewards, rewards
from covey.environment.surrogate_rounds import Rounds, SurrogateRounds

__all__ = [
    "AssociationEnv",
    "Calibration",
    "FeatureSet",
    "Learning",
    "Outcome",
    "Penalty",
    "RealRounds",
    "Rewards",
    "Rounds",
    "SurrogateRounds",
    "allowed",
    "calibrate",
    "calibration_for",
    "calibration_path",
    "feature_names",
    "features",
    "find_calibration",
    "learning_hash",
    "parallel_env",
    "rewards",
    "state_vector",
    "subset_count",
    "subset_numbers",
    "subsets",
    "vector_env",
]
