"""`gradient_loss`: the paper's rule, Eq. (4) with mean losses and the sign that prefers the best task."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy.typing as npt

from covey.identification.rule import Floats, ScoreRule, best_score


class GradientLoss(ScoreRule):
    """Similarity of the descent direction to the model's last movement, and the loss (errata E1, E2).

    A user takes the task that maximises weight x cos(-gradient, movement) - (1 - weight) x loss, with the weight
    `clustering.similarity_weight`.
    """

    paper: ClassVar[str] = "arXiv:2507.07320, Eq. (4), corrected (errata E1, E2)"
    computes: ClassVar[str] = "its loss and gradient on clustering.batch samples at every model"
    sees: ClassVar[str] = "stations see the task that a user names; with masks, nobody does"
    air: ClassVar[str] = "a task per user"
    suits: ClassVar[str] = "the paper's method; masked uploads, as with all rules whose users name a task"
    limits: ClassVar[str] = (
        "groups that like one model best at the start can share it for good, while another model has no users"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"losses", "gradients", "movements"})
    announcements: ClassVar[tuple[str, ...]] = ("raw", "noisy_max", "from_release")

    @property
    def similarity_weight(self) -> float:
        """Lambda of (4)."""
        return self.scenario.clustering.similarity_weight

    @property
    def gradients(self) -> bool:
        """Not where the similarity has no weight."""
        return self.similarity_weight > 0

    def told(self, losses: Floats, similarity: Floats) -> npt.NDArray[Any]:
        """The task of each user, (n,)."""
        return best_score(losses, similarity, self.similarity_weight)
