"""Who does the users' work: the interface between a round and its users, wherever they are.

`Engine` computes for all users in this machine. `covey.deploy` has a fleet whose users are devices that may be
slow, broken or gone: what does not arrive is missing, and the round goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Loss, summed over samples, and number of right answers of each user, (U,) each; NaN where a user did not tell."""

    train_loss_sum: Floats
    train_correct: npt.NDArray[Any]
    test_loss_sum: Floats
    test_correct: npt.NDArray[Any]


@dataclass(frozen=True)
class Steps:
    """Noised local steps that n users are asked for, from the models of their tasks or all from one.

    users, tasks: (n,), or base: (D,) instead of tasks. clip: (n,) clipping norms; noise_std: (n,) of the noise on the
    sums of clipped gradients; batch: samples of a step, 0 for all; sizes: (n,) public numbers of samples that sums are
    divided by; stations, blocks: (n,) where uploads are sent, for users who have to know.
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


@dataclass(frozen=True)
class Releases:
    """What users sent of their local steps.

    uploads: what arrived, of whatever type and shape. mean_norm, clipped_fraction: (n,) for the n users that
    were asked, NaN where unknown. refused: users who said that their own budget cannot pay, so that nothing left them.
    """

    uploads: list[Upload]
    mean_norm: Floats
    clipped_fraction: Floats
    refused: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class Members:
    """What is public about the users: samples and test_samples (U,), shape of a sample, number of classes.

    groups: (U,) true groups, for measurement only; -1 where nobody knows.
    """

    samples: Ints
    test_samples: Ints
    groups: Ints
    shape: tuple[int, ...]
    classes: int


class Fleet(Protocol):
    """All users' work on one set of task models, as a round needs it."""

    def publish(self, models: Weights, movements: Weights) -> None:
        """Give all users `models` and their last `movements`, (K, D) each."""

    @property
    def reports_metrics(self) -> bool:
        """Whether losses, accuracies and clipping statistics leave users' devices, which nothing protects."""

    @property
    def lacks(self) -> Mapping[str, str]:
        """What this fleet cannot give to a part, by need (`covey.parts.NEEDS`), and why, in the words of an error."""

    def tell(self, round: int, users: Ints) -> npt.NDArray[Any] | None:
        """What `users` (n,) announce about their task, (n,) or (n, m); -1 or NaN for users that did not tell; None
        where nobody tells."""

    def hold(self, data: Any) -> None:
        """From now on users hold this data (`covey.data.UserData`), as many samples each as before."""

    def release(self, round: int, steps: Steps) -> Releases:
        """What users send of these local steps."""

    def evaluate(self, tasks: Ints) -> Evaluation:
        """Loss and accuracy of every user on the model of its task, `tasks` (U,)."""

    def open_masked_sums(self) -> Any:
        """Where users masked their uploads themselves: what sums opened to (`covey.security.MaskedSums`); else None."""

    def device_ledgers(self) -> Mapping[str, Floats] | None:
        """What users' own ledgers say they have spent in all, (U,) by kind of release; None without such ledgers."""

    def close(self) -> None:
        """End all that the fleet has started; may be called again."""
