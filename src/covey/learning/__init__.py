"""What users and stations compute: identification, local steps, aggregation, and the engine that runs them."""

from covey.learning.aggregate import aggregate_models, screen
from covey.learning.clip import ClippedSum, clipped_gradient_sum
from covey.learning.engine import Engine, Evaluation, TrainResult
from covey.learning.identify import (
    adjusted_rand_index,
    clustering_accuracy,
    identities_from_scores,
    kmeans_identities,
    matching,
    random_identities,
)
from covey.learning.models import (
    build_model,
    check_module,
    count_weights,
    flatten,
    initial_weights,
    load_flat,
    register_model,
)
from covey.learning.steps import LocalUpdate, evaluate, noised_step, task_scores
from covey.learning.threads import one_thread, tune_allocator
from covey.learning.work import NoiseFunction

__all__ = [
    "ClippedSum",
    "Engine",
    "Evaluation",
    "LocalUpdate",
    "NoiseFunction",
    "TrainResult",
    "adjusted_rand_index",
    "aggregate_models",
    "build_model",
    "check_module",
    "clipped_gradient_sum",
    "clustering_accuracy",
    "count_weights",
    "evaluate",
    "flatten",
    "identities_from_scores",
    "initial_weights",
    "kmeans_identities",
    "load_flat",
    "matching",
    "noised_step",
    "one_thread",
    "random_identities",
    "register_model",
    "screen",
    "task_scores",
    "tune_allocator",
]
