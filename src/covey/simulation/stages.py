"""What the steps of a round hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from covey.federated import Evaluation, Intake
from covey.identification import Identification
from covey.identification.rule import Memory
from covey.network import Observation, Plan
from covey.privacy import Ledger
from covey.simulation.record import RoundRecord
from covey.simulation.state import State


@dataclass(frozen=True)
class Turn:
    """A round up to the stations' choice.

    state: before the round; broadcast_s: (B,) seconds of air time; groups: (U,) true groups in this round, for
    measurement only; majority: (U,) accuracy of naming each user's most frequent class, NaN where samples are not here.
    """

    state: State
    broadcast_s: NDArray[np.float64]
    identification: Identification
    observation: Observation
    groups: NDArray[np.int64]
    majority: NDArray[np.float64]


@dataclass(frozen=True)
class Decision:
    """Who uploads to whom, on which block and with how much noise; `noise_std` is (U,), 0 if not served."""

    plan: Plan
    noise_std: NDArray[np.float64]
    infeasible_tasks: int
    ledger: Ledger
    refused: NDArray[np.int64]


@dataclass(frozen=True)
class Uploads:
    """What the stations let in of the served users' local models, and clipping statistics (n,).

    refused: users whose own budget could not pay, so that nothing left them. kept: (n, D) models of their own that the
    users keep on the device, lost or rejected as their uploads may be; empty where uploads are not made from such.
    """

    intake: Intake
    mean_norm: NDArray[np.float64]
    clipped_fraction: NDArray[np.float64]
    refused: NDArray[np.int64]
    kept: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True)
class NewModels:
    """New models (K, D), the samples behind each (K,), 0 where it stayed, and what masking them took.

    joined: (U,) bool, users whose upload is in a model; closed_tasks: tasks whose sum was too small to be opened;
    unsent: uploads that could not be masked and therefore were not sent;
    counts: (K,) uploads for each model that stations know of, those of sums that stayed closed included, -1 where they
    do not; None where totals tell;
    memory: what the aggregation remembers for the next round;
    protocol_bytes: sent, received and passed on for secure aggregation besides the uploads; protocol_sent_bytes: (U,)
    those that users sent.
    """

    models: NDArray[np.float32]
    totals: NDArray[np.float64]
    joined: NDArray[np.bool_]
    closed_tasks: int = 0
    unsent: int = 0
    protocol_bytes: int = 0
    protocol_sent_bytes: NDArray[np.int64] | int = 0
    counts: NDArray[np.int64] | None = None
    memory: Memory = field(default_factory=dict)


@dataclass(frozen=True)
class PersonalModels:
    """Models that users keep for themselves after the round; empty where users have none.

    weights: (U, D); begun, trained: (U,) bool, users that have one, and that were asked for it in this round;
    test_loss_sum, test_correct: (U,) on its test samples, NaN for users that were not.
    """

    weights: NDArray[np.float32]
    begun: NDArray[np.bool_]
    trained: NDArray[np.bool_]
    test_loss_sum: NDArray[np.float64]
    test_correct: NDArray[np.float64]


@dataclass(frozen=True)
class Finished:
    """A whole round: the state after it, its record, and what was decided and measured."""

    state: State
    record: RoundRecord
    decision: Decision
    evaluation: Evaluation
