"""Debiased products: what noised steps say about who belongs together.

Users that step from one model release d_i = step + noise, where the noise of each of the D weights has a known standard
deviation tau_i. Squared distances between releases carry D tau_i^2, which differs from user to user and drowns
the groups; products of two different users' releases carry nothing: E <d_i, d_j> = <step_i, step_j>. A product
of a user's release with itself is debiased by D tau_i^2. Everything here is post-processing of releases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Weights turned to float64 at once: large models of many users would not fit twice.
_COLUMNS = 1 << 16


@dataclass(frozen=True)
class Products:
    """Products of n users' steps, (n, n) each: unbiased values, and the variance that the noise gives them."""

    values: Floats
    variance: Floats

    @property
    def users(self) -> int:
        """Number of users, n."""
        return len(self.values)


def debiased_products(steps: npt.NDArray[np.floating], noise_std: Floats) -> Products:
    """Products of `steps` (n, D) whose weights carry noise of standard deviation `noise_std` (n,).

    For i != j the product is unbiased as it is, with variance tau_i^2 tau_j^2 D + tau_i^2 |s_j|^2 + tau_j^2 |s_i|^2; a
    product with itself is debiased by tau_i^2 D and has the variance 2 tau_i^4 D + 4 tau_i^2 |s_i|^2. The unknown
    squared lengths |s|^2 are replaced by their mean over all users, which is known best.
    """
    users, size = steps.shape
    raw = np.zeros((users, users))
    for start in range(0, size, _COLUMNS):
        part = steps[:, start : start + _COLUMNS].astype(np.float64)
        raw += part @ part.T
    variance = np.asarray(noise_std, np.float64) ** 2
    values = raw - np.diag(variance * size)
    length = max(_precise_mean(np.diag(values), variance), 0.0)
    spread = np.outer(variance, variance) * size + length * (variance[:, None] + variance[None, :])
    spread[np.diag_indices(users)] = 2 * variance**2 * size + 4 * variance * length
    return Products(values, spread)


def shrink_lengths(products: Products) -> Floats:
    """The products (n, n) with each user's product with itself moved towards the mean of all, the more the noisier.

    A debiased squared length is uncertain by sqrt(2 D) tau_i^2, much more than a product of two users, and decides
    alone whether a user looks like one of a kind. What differs beyond noise (the empirical variance less the known
    one) is kept in proportion.
    """
    own, noise = np.diag(products.values), np.diag(products.variance)
    shrunk = products.values.copy()
    if len(own) == 0:
        return shrunk
    mean = _precise_mean(own, noise)
    real = max(float(((own - mean) ** 2 - noise).mean()), 0.0)
    share = np.divide(real, real + noise, out=np.ones_like(noise), where=noise > 0)
    shrunk[np.diag_indices(len(own))] = mean + share * (own - mean)
    return shrunk


def _precise_mean(numbers: Floats, variance: Floats) -> float:
    """Mean of `numbers` (n,) weighted by one over their `variance` (n,); 0 of none, plain where nothing varies."""
    if len(numbers) == 0:
        return 0.0
    largest = float(variance.max())
    # The least share keeps a number without noise from being the only one that counts by overflow.
    weights = 1.0 / (variance / largest + 1e-12) if largest > 0 else np.ones(len(numbers))
    return float(np.average(numbers, weights=weights))
