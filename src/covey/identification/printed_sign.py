"""`printed_sign`: Eq. (4) as it is printed, for comparison; its sign prefers the worst task (errata E1)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy.typing as npt

from covey.identification.gradient_loss import GradientLoss
from covey.identification.rule import Floats, best_score


class PrintedSign(GradientLoss):
    """The rule `gradient_loss` with the similarity of the gradient itself instead of the descent direction."""

    paper: ClassVar[str] = "arXiv:2507.07320, Eq. (4) as printed"
    suits: ClassVar[str] = "comparison only: what the printed sign does"
    limits: ClassVar[str] = "everywhere: its sign prefers the worst task (errata E1)"
    announcements: ClassVar[tuple[str, ...]] = ("raw",)

    def told(self, losses: Floats, similarity: Floats) -> npt.NDArray[Any]:
        """The task of each user, (n,)."""
        return best_score(losses, -similarity, self.similarity_weight)
