"""Releases of one round as the mechanisms that accounting knows: Gaussian noise, on batches that may be sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from covey.privacy.accounting import Adjacency, sensitivity

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GaussianReleases:
    """What n users release in a round: each one `steps` sums with fresh Gaussian noise.

    noise_std: (n,) standard deviation of the noise on a sum; sensitivity: (n,) most that one neighbour changes a sum;
    rate: (n,) probability with which each sample is in a batch, independently of all others and unknown to others
    (Poisson sampling), 1 where batches are anything else, which accounting then takes for all samples; steps: (n,)
    number of sums.
    """

    noise_std: Floats
    sensitivity: Floats
    rate: Floats
    steps: Ints

    def __post_init__(self) -> None:
        if np.asarray(self.steps).dtype.kind not in "iu":
            raise ValueError("the steps of releases are no whole numbers; give how many sums each user releases")

    @classmethod
    def of_sums(
        cls,
        clip: Floats,
        noise_std: Floats,
        adjacency: Adjacency,
        *,
        steps: int | Ints = 1,
        rate: float | Floats = 1.0,
    ) -> GaussianReleases:
        """`steps` sums of gradients that are clipped to `clip` (n,), each with noise of `noise_std` (n,)."""
        std = np.asarray(noise_std, dtype=np.float64)
        if np.any(std < 0) or np.any(np.isnan(std)):
            raise ValueError(f"noise_std must be 0 or more, got {noise_std!r}")
        most = np.broadcast_to(sensitivity(clip, adjacency), std.shape)
        rates, counts = np.asarray(rate, np.float64), np.asarray(steps)
        return cls(std, most, np.broadcast_to(rates, std.shape), np.broadcast_to(counts, std.shape))

    @property
    def sampled(self) -> NDArray[np.bool_]:
        """(n,) whose batches are Poisson samples, so that sampling hides who is in them."""
        return np.asarray((self.rate < 1.0) & (self.noise_std > 0))

    def of(self, rows: NDArray[Any]) -> GaussianReleases:
        """The releases of these users only; rows: (n,) bool, or indices (m,)."""
        return GaussianReleases(self.noise_std[rows], self.sensitivity[rows], self.rate[rows], self.steps[rows])

    @property
    def multiplier(self) -> Floats:
        """(n,) noise multiplier: standard deviation of the noise divided by the sensitivity."""
        return np.asarray(self.noise_std / self.sensitivity)

    @property
    def rho(self) -> Floats:
        """(n,) zCDP cost: exact where `rate` is 1, and an upper bound elsewhere; infinite without noise."""
        with np.errstate(divide="ignore"):
            return np.asarray(self.steps * (self.sensitivity**2 / (2.0 * self.noise_std**2)))
