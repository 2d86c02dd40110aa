"""`loss`: the task of smallest loss, as in IFCA (Ghosh et al. 2020)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification.rule import Floats, ScoreRule, best_score


class Loss(ScoreRule):
    """Users take the task whose model has the smallest mean loss on a batch of their samples."""

    paper: ClassVar[str] = "IFCA, Ghosh et al. 2020, arXiv:2006.04088"
    computes: ClassVar[str] = "its loss on clustering.batch samples at every model"
    sees: ClassVar[str] = "stations see the task that a user names; with masks, nobody does"
    air: ClassVar[str] = "a task per user"
    suits: ClassVar[str] = (
        "models that start apart, or restarts; a third of the computation of gradient_loss; masked uploads"
    )
    limits: ClassVar[str] = "as gradient_loss, and more often: groups that like one model best at the start share it"
    needs: ClassVar[frozenset[str]] = frozenset({"losses"})
    announcements: ClassVar[tuple[str, ...]] = ("raw", "noisy_max", "from_release")
    # Forward passes only.
    passes_per_model: ClassVar[float] = 1.0 / 3.0

    def told(self, losses: Floats, similarity: Floats) -> npt.NDArray[Any]:
        """The task of each user, (n,)."""
        return best_score(losses, np.zeros_like(losses), 0.0)
