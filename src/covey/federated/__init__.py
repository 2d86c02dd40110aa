"""Federated computation: local training, aggregation, and the engine that runs them for all users."""

from covey.federated.aggregation import Accepted, Aggregation, Mean, aggregate_models
from covey.federated.clip import ClippedSum, clipped_gradient_sum
from covey.federated.engine import Engine, TrainResult
from covey.federated.fleet import Evaluation, Fleet, Members, Releases, Steps
from covey.federated.intake import REASONS, Intake, Transport, Upload, admit, reach
from covey.federated.losses import Loss, build_loss, loss_of, use_loss
from covey.federated.models import (
    build_model,
    check_module,
    count_weights,
    flatten,
    initial_weights,
    load_flat,
    register_model,
)
from covey.federated.personal import Ditto, MrMtl, NoPersonal, Personal, PersonalProblem, build_training
from covey.federated.steps import LocalUpdate, bounded_scores, evaluate, noised_step, task_scores
from covey.federated.threads import one_thread, tune_allocator
from covey.federated.training import LocalProblem, LocalTraining, Sgd, Step
from covey.federated.user_compute import NoiseFunction

__all__ = [
    "REASONS",
    "Accepted",
    "Aggregation",
    "ClippedSum",
    "Ditto",
    "Engine",
    "Evaluation",
    "Fleet",
    "Intake",
    "LocalProblem",
    "LocalTraining",
    "LocalUpdate",
    "Loss",
    "Mean",
    "Members",
    "MrMtl",
    "NoPersonal",
    "NoiseFunction",
    "Personal",
    "PersonalProblem",
    "Releases",
    "Sgd",
    "Step",
    "Steps",
    "TrainResult",
    "Transport",
    "Upload",
    "admit",
    "aggregate_models",
    "bounded_scores",
    "build_loss",
    "build_model",
    "build_training",
    "check_module",
    "clipped_gradient_sum",
    "count_weights",
    "evaluate",
    "flatten",
    "initial_weights",
    "load_flat",
    "loss_of",
    "noised_step",
    "one_thread",
    "reach",
    "register_model",
    "task_scores",
    "tune_allocator",
    "use_loss",
]
