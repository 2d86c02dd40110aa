"""A start in one file: all models begin as small perturbations of the first one.

    covey run quick --set clustering.start=examples.parts.perturbed_start:PerturbedStart

Models that are nearly equal are told apart by what their first users teach them, not by the weights that were drawn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.identification.start import Start

#: Size of the perturbations beside the differences between models that are drawn independently.
SHARE = 0.1


class PerturbedStart(Start):
    """The first model, moved a tenth of the way towards each of the others."""

    def models(self, first: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """(K, D) models of the first round, from K models drawn at random."""
        return np.asarray(first[0] + SHARE * (first - first[0]), dtype=np.float32)
