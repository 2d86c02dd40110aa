"""`noisy_contrasts`: users announce by how much models suit them better than others, with noise that is charged."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from covey.identification.noisy_losses import NoisyLosses
from covey.identification.rule import Floats

#: Losses that are larger or undefined count as this, so that their squares are finite.
_WORST = 1e6


class NoisyContrasts(NoisyLosses):
    """As `noisy_losses`, with each sample's losses less their mean over models, clipped to a norm.

    The groups show in differences between models, which are much smaller than losses: clipped to the norm C,
    `privacy.contrast_bound`, one sample moves the sum by at most 2 C when replaced and C when added or removed, without
    the factor sqrt(K). The mean that is lost shifts all of a user's losses alike and decides nothing.
    """

    paper: ClassVar[str] = "Gaussian mechanism on clipped differences; covey's own"
    computes: ClassVar[str] = (
        "its loss at every model on all its samples, less its mean, clipped to privacy.contrast_bound"
    )
    sees: ClassVar[str] = "stations see K noised differences of losses of every user"
    air: ClassVar[str] = "K numbers per user"
    suits: ClassVar[str] = "charged identities in general: less noise than noisy_losses at equal rho, whatever K"
    limits: ClassVar[str] = "very few samples per user with a small charge; losses far above contrast_bound are clipped"
    note: ClassVar[str] = "Differences of losses between models were announced with noise; epsilon includes them."
    words: ClassVar[str] = "by differences of losses announced with noise, charged"

    @property
    def reach(self) -> float:
        """Most by which one sample can move the sum of bounded vectors, in L2 norm: replaced, or added or removed."""
        privacy = self.scenario.privacy
        return 2.0 * privacy.contrast_bound if privacy.adjacency == "replace_one" else privacy.contrast_bound

    @property
    def middle(self) -> float:
        """0, the middle of the ball in which contrasts lie."""
        return 0.0

    def bounded(self, losses: Floats) -> Floats:
        """Contrasts (n, K), of norm up to the bound, of the losses (n, K) of n samples."""
        finite = np.nan_to_num(losses, nan=_WORST, posinf=_WORST, neginf=0.0).clip(0.0, _WORST)
        contrasts = finite - finite.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(contrasts, axis=1, keepdims=True)
        bound = self.scenario.privacy.contrast_bound
        return np.asarray(contrasts * (bound / np.maximum(norms, bound)), dtype=np.float64)
