"""What the accuracy of a run is worth, in sentences: is it clearly above guessing, and how far from a central model?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

if TYPE_CHECKING:
    from covey.simulation.history import History

#: Probability that the true mean difference lies in the interval.
_LEVEL = 0.95


@dataclass(frozen=True)
class Above:
    """Mean over n users of accuracy minus that of guessing, with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int

    @property
    def clear(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0


def above_majority(history: History) -> Above | None:
    """How far the users' accuracy in the last round is above guessing, paired by user; None where it is not known."""
    if not history.records:
        return None
    users = history.records[-1].users
    return paired(users.accuracy, users.majority)


def paired(accuracy: NDArray[np.float64], majority: NDArray[np.float64]) -> Above | None:
    """The mean of the differences (U,) with its interval by Student's t, of users of whom both are known.

    None for fewer than two users, of which no interval can be made.
    """
    difference = (accuracy - majority)[np.isfinite(accuracy) & np.isfinite(majority)]
    n = len(difference)
    if n < 2:
        return None
    mean = float(difference.mean())
    half = float(stdtrit(n - 1, (1 + _LEVEL) / 2) * difference.std(ddof=1) / np.sqrt(n))
    return Above(mean, mean - half, mean + half, n)


def accuracy_remarks(history: History) -> list[str]:
    """Sentences on the accuracy of the last round, the most important first; none where it is well above guessing."""
    above = above_majority(history)
    if above is None:
        return []
    last = history.records[-1]
    remarks = []
    if not above.clear:
        remarks.append(
            "The models are no better than naming each user's most frequent class: test accuracy is"
            f" {last.accuracy:.3f} and that of naming it {last.majority:.3f}; the difference over {above.n} users is"
            f" {above.value:+.3f} (95 % interval {above.low:+.3f} to {above.high:+.3f})."
        )
    if np.isfinite(last.central):
        remarks += _beside_central(last.accuracy, last.majority, last.central)
    return remarks


def _beside_central(accuracy: float, majority: float, central: float) -> list[str]:
    if central <= majority:
        return [
            f"Even a model trained centrally on all samples of the user's group reaches {central:.3f} only, which is"
            f" not above naming the most frequent class ({majority:.3f}): this model cannot learn more from these data."
        ]
    if accuracy - majority < central - accuracy:
        return [
            f"Test accuracy ({accuracy:.3f}) is nearer to naming the most frequent class ({majority:.3f}) than to a"
            f" model trained centrally on all samples of the user's group without noise ({central:.3f})."
        ]
    return []
