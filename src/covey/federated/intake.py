"""Validation of uploads: a station checks every upload before aggregation; a bad one does not stop the round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.arrays import make_read_only

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]

#: Why an upload was rejected, in the order of the flags in users.csv (1, 2, 4, ...).
REASONS: dict[str, str] = {
    "unexpected": "from a user that was not asked to upload",
    "stale": "of another round",
    "duplicate": "a second upload of the same user",
    "oversized": "larger than any valid upload",
    "wrong_type": "not a float32 array",
    "wrong_shape": "with a different number of weights than the model",
    "not_finite": "with infinity or NaN",
    "too_far": "farther from the model than clipping and noise allow",
}
#: Upper bound on the probability that an honest upload is rejected as `too_far`.
_HONEST_TOO_FAR = 1e-12
#: How far rounding to float32 at the end of a step may carry an upload.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Upload:
    """An upload as received by a station: sender, round (from 0), and the new weights of its task's model."""

    user: int
    round: int
    weights: npt.NDArray[Any]


#: The transport between users and stations: may drop, duplicate, delay or corrupt uploads. Takes the round and the
#: uploads sent.
Transport = Callable[[int, Sequence[Upload]], Sequence[Upload]]


@dataclass(frozen=True)
class Intake:
    """Uploads of a round after validation, in arrays that can be read, not written.

    users: (n,) users that were asked to upload, in that order; weights: (n, D), rows of rejected and lost
    uploads are 0; accepted: (n,) bool; reasons: the affected users by reason, one entry per rejected upload
    (-1 for an unknown sender).
    """

    users: Ints
    weights: Weights
    accepted: npt.NDArray[np.bool_]
    reasons: dict[str, list[int]]

    def __post_init__(self) -> None:
        # Aggregations, rules and starts are all given these arrays.
        make_read_only(self)

    @property
    def rejected(self) -> int:
        """Number of rejected uploads."""
        return sum(len(users) for users in self.reasons.values())


def admit(
    arrived: Sequence[Upload],
    round: int,
    users: Ints,
    starts: Weights,
    start: Ints,
    reach: Floats,
    *,
    sealed: bool = False,
) -> Intake:
    """Validate the uploads that `arrived` in `round`, where those of `users` (n,) were expected.

    User i started from `starts[start[i]]`, starts (K, D), and its upload is rejected if it is farther from it than
    `reach[i]` (n,). The first valid upload of a user counts; a bad upload never affects another one. Uploads `sealed`
    under masks cannot be inspected: their values are not checked.
    """
    length = starts.shape[1]
    rows = {int(user): row for row, user in enumerate(users)}
    weights = np.zeros((len(users), length), dtype=np.float32)
    accepted = np.zeros(len(users), dtype=bool)
    reasons: dict[str, list[int]] = {}
    for upload in arrived:
        row = rows.get(upload.user)
        reason = _fault(upload, round, row, accepted, length)
        if reason is None and row is not None and not sealed:
            reason = None if np.isfinite(upload.weights).all() else "not_finite"
        if reason is None and row is not None and not sealed:
            reason = "too_far" if _distance(upload.weights, starts[start[row]]) > reach[row] else None
        if reason is not None or row is None:
            reasons.setdefault(reason or "unexpected", []).append(upload.user if row is not None else -1)
            continue
        weights[row], accepted[row] = upload.weights, True
    return Intake(users, weights, accepted, reasons)


def _distance(weights: Weights, start: Weights) -> float:
    """Euclidean distance of two vectors (D,), in float64.

    Not by `numpy.linalg.norm`: that hands long vectors to several BLAS threads, which wait for each other where
    processes share the cores.
    """
    step = weights.astype(np.float64)
    step -= start
    return math.sqrt(float(np.square(step, out=step).sum()))


def _fault(upload: Upload, round: int, row: int | None, accepted: npt.NDArray[np.bool_], length: int) -> str | None:
    """The first failed check of an upload, cheapest checks first, so that flooding a station is cheap to reject."""
    if row is None:
        return "unexpected"
    if upload.round != round:
        return "stale"
    if accepted[row]:
        return "duplicate"
    if type(upload.weights) is not np.ndarray:  # subclasses such as masked arrays may hide values
        return "wrong_type"
    if upload.weights.nbytes > 8 * length:
        return "oversized"
    if upload.weights.dtype != np.float32:
        return "wrong_type"
    if upload.weights.shape != (length,):
        return "wrong_shape"
    return None


def reach(
    clip: Floats, samples: npt.NDArray[np.integer], noise_std: Floats, learning_rate: float, length: int
) -> Floats:
    """(n,) largest length of an honest user's step: clipped gradients of `samples` (n,), noise on `length` weights.

    The norm of the noise exceeds noise_std x (sqrt(D) + sqrt(2 ln(1/p))) with probability below p.
    """
    noise = noise_std * (math.sqrt(length) + math.sqrt(2.0 * math.log(1.0 / _HONEST_TOO_FAR)))
    return np.asarray(1.001 * learning_rate / samples * (samples * clip + noise) + ROUNDING)
