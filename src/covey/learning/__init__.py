"""What users and stations compute: identification, local steps, aggregation, and the engine that runs them."""

from covey.learning.aggregate import aggregate_models
from covey.learning.clip import ClippedSum, clipped_gradient_sum
from covey.learning.engine import Engine, TrainResult
from covey.learning.fleet import Evaluation, Fleet, Members, Releases, Steps
from covey.learning.identify import (
    adjusted_rand_index,
    clustering_accuracy,
    identities_from_scores,
    identity_noise_scale,
    kmeans_identities,
    matching,
    noisy_identities,
    random_identities,
    released_identities,
)
from covey.learning.intake import REASONS, Intake, Transport, Upload, admit, reach
from covey.learning.models import (
    build_model,
    check_module,
    count_weights,
    flatten,
    initial_weights,
    load_flat,
    register_model,
)
from covey.learning.steps import LocalUpdate, bounded_scores, evaluate, noised_step, score_width, task_scores
from covey.learning.threads import one_thread, tune_allocator
from covey.learning.work import NoiseFunction

__all__ = [
    "REASONS",
    "ClippedSum",
    "Engine",
    "Evaluation",
    "Fleet",
    "Intake",
    "LocalUpdate",
    "Members",
    "NoiseFunction",
    "Releases",
    "Steps",
    "TrainResult",
    "Transport",
    "Upload",
    "adjusted_rand_index",
    "admit",
    "aggregate_models",
    "bounded_scores",
    "build_model",
    "check_module",
    "clipped_gradient_sum",
    "clustering_accuracy",
    "count_weights",
    "evaluate",
    "flatten",
    "identities_from_scores",
    "identity_noise_scale",
    "initial_weights",
    "kmeans_identities",
    "load_flat",
    "matching",
    "noised_step",
    "noisy_identities",
    "one_thread",
    "random_identities",
    "reach",
    "register_model",
    "released_identities",
    "score_width",
    "task_scores",
    "tune_allocator",
]
