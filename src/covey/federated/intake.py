"""What a station lets in: every upload is checked before it can touch a model, and the round goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]

#: Why an upload was turned away, in the order of the flags in users.csv (1, 2, 4, ...).
REASONS: dict[str, str] = {
    "unexpected": "from somebody who was not asked to send",
    "stale": "of another round",
    "duplicate": "a second upload of the same user",
    "oversized": "longer than any upload can be",
    "wrong_type": "not made of 32-bit floating-point numbers",
    "wrong_shape": "not as many weights as the model has",
    "not_finite": "holding infinite or undefined numbers",
    "too_far": "farther from the model than clipping and noise allow",
}
#: An honest user is turned away as `too_far` less often than this.
_HONEST_TOO_FAR = 1e-12


@dataclass(frozen=True)
class Upload:
    """What arrives at a station: who sent it, in which round (from 0), and the new weights of its task's model."""

    user: int
    round: int
    weights: npt.NDArray[Any]


#: What happens to uploads on their way: may lose, repeat, delay or change them. Takes the round and what was sent.
Transport = Callable[[int, Sequence[Upload]], Sequence[Upload]]


@dataclass(frozen=True)
class Intake:
    """Uploads of a round after the check.

    users: (n,) senders that were asked, in their order; weights: (n, D), rows of rejected and lost
    uploads are 0; accepted: (n,) bool; reasons: for each reason the users it befell, one entry for
    every upload turned away (-1 for nobody known).
    """

    users: Ints
    weights: Weights
    accepted: npt.NDArray[np.bool_]
    reasons: dict[str, list[int]]

    @property
    def rejected(self) -> int:
        """Number of uploads turned away."""
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
    """Check what arrived against what was asked for: in `round`, uploads of `users` (n,).

    User i started from `starts[start[i]]`, starts (K, D), and cannot be farther from it than `reach[i]`
    (n,). The first good upload of a user counts; nothing that is wrong with one upload affects another.
    What is `sealed` under masks cannot be looked into: its numbers are taken as they are.
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
            distance = np.linalg.norm(upload.weights.astype(np.float64) - starts[start[row]])
            reason = "too_far" if distance > reach[row] else None
        if reason is not None or row is None:
            reasons.setdefault(reason or "unexpected", []).append(upload.user if row is not None else -1)
            continue
        weights[row], accepted[row] = upload.weights, True
    return Intake(users, weights, accepted, reasons)


def _fault(upload: Upload, round: int, row: int | None, accepted: npt.NDArray[np.bool_], length: int) -> str | None:
    """The first thing wrong with an upload, cheapest checks first, so that a flood costs little."""
    if row is None:
        return "unexpected"
    if upload.round != round:
        return "stale"
    if accepted[row]:
        return "duplicate"
    if type(upload.weights) is not np.ndarray:  # kinds of it, such as masked arrays, may hide what they hold
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
    """(n,) how far an honest user's step can lead: clipped gradients of `samples` (n,), and noise of `length` weights.

    The norm of the noise exceeds noise_std x (sqrt(D) + sqrt(2 ln(1/p))) with probability below p.
    """
    noise = noise_std * (math.sqrt(length) + math.sqrt(2.0 * math.log(1.0 / _HONEST_TOO_FAR)))
    # The margin is for rounding to 32 bits at the end of the step.
    return np.asarray(1.001 * learning_rate / samples * (samples * clip + noise) + 1e-3)
