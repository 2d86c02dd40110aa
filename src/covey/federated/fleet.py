"""The interface between a round and its users, simulated or real.

`Engine` computes for all users on this machine. `covey.deploy` has a fleet of devices that may be slow, faulty or
offline: a missing answer does not stop the round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from covey.federated.intake import Upload

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Evaluation:
    """Loss, summed over samples, and correct predictions of each user, (U,) each; NaN where a user did not report."""

    train_loss_sum: Floats
    train_correct: npt.NDArray[Any]
    test_loss_sum: Floats
    test_correct: npt.NDArray[Any]


@dataclass(frozen=True)
class Steps:
    """Request for noised local steps of n users, from the models of their tasks or all from one.

    users, tasks: (n,), or base: (D,) instead of tasks. clip: (n,) clipping norms; noise_std: (n,) of the noise on the
    sums of clipped gradients; batch: samples of a step, 0 for all; sizes: (n,) public sample counts that sums are
    divided by; purpose: names the random draws, any text: whoever asks for uploads besides those of the round gives a
    name of its own, or both would have the same noise; stations, blocks: (n,) where to upload, for fleets of real
    devices; own: (n,) models of the users' own (D,), None for those that have none yet, where uploads are made from
    them and they are kept here.
    """

    users: Ints
    tasks: Ints | None
    clip: Floats
    noise_std: Floats
    learning_rate: float
    batch: int
    sizes: Ints
    purpose: str = "noise"
    base: Weights | None = None
    stations: Ints | None = None
    blocks: Ints | None = None
    own: Sequence[Weights | None] | None = None


@dataclass(frozen=True)
class Releases:
    """Answers to `Steps`.

    uploads: those that arrived, not yet validated. mean_norm, clipped_fraction: (n,) for the n users that
    were asked, NaN where unknown. refused: users whose own privacy budget is exhausted, so that they released nothing.
    kept: (n, D) models of their own that users keep; empty where they have none, or are elsewhere.
    """

    uploads: list[Upload]
    mean_norm: Floats
    clipped_fraction: Floats
    refused: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    kept: Weights = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True)
class Members:
    """Public facts about the users: samples and test_samples (U,), shape of a sample, number of classes.

    groups: (U,) true groups, for measurement only; -1 where unknown.
    """

    samples: Ints
    test_samples: Ints
    groups: Ints
    shape: tuple[int, ...]
    classes: int


class Fleet(Protocol):
    """Local computation of all users on one set of task models, as a round needs it."""

    def publish(self, models: Weights, movements: Weights) -> None:
        """Broadcast `models` and their last `movements`, (K, D) each, to all users."""

    @property
    def reports_metrics(self) -> bool:
        """Whether losses, accuracies and clipping statistics leave users' devices, unprotected."""

    @property
    def lacks(self) -> Mapping[str, str]:
        """Needs of parts (`covey.parts.NEEDS`) that this fleet cannot meet, with the reason for the error message."""

    def tell(self, round: int, users: Ints) -> npt.NDArray[Any] | None:
        """Announcements of `users` (n,) about their task, (n,) or (n, m); -1 or NaN for users without one; None
        where stations receive none."""

    def hold(self, data: Any) -> None:
        """Replace the users' data (`covey.data.UserData`), with unchanged sample counts."""

    def release(self, round: int, steps: Steps) -> Releases:
        """Run these local steps and return the users' uploads."""

    def evaluate(self, tasks: Ints) -> Evaluation:
        """Loss and accuracy of every user on the model of its task, `tasks` (U,)."""

    def open_masked_sums(self) -> Any:
        """The opened sums (`covey.security.MaskedSums`) where users mask their uploads themselves; else None."""

    def device_ledgers(self) -> Mapping[str, npt.NDArray[Any]] | None:
        """Total privacy cost in users' own ledgers, (U,) by kind of release; None without such ledgers."""

    def close(self) -> None:
        """Release all resources; idempotent."""
