"""An identification rule in one file: users follow the model that moves in their own descent direction.

    covey run quick --set clustering.rule=examples.parts.similarity_rule:Similarity

or, in a scenario, `clustering.rule = "examples.parts.similarity_rule:Similarity"`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification import ScoreRule


class Similarity(ScoreRule):
    """The task whose last movement is most similar to the user's descent direction, regardless of its loss."""

    # Declared, so that users compute gradients and not only losses.
    needs: ClassVar[frozenset[str]] = frozenset({"gradients", "movements"})

    def told(self, losses: npt.NDArray[np.float64], similarity: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Announced task of each user, (n,), from losses and similarity, (n, K) each."""
        return similarity.argmax(axis=1)
