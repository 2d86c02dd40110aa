"""`kmeans_debiased`: central k-means that knows the noise of what it clusters."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from covey.identification.kmeans import Gathered, KMeans
from covey.identification.partition import best_partition
from covey.identification.products import debiased_products, shrink_lengths
from covey.identification.rule import Ints


class KMeansDebiased(KMeans):
    """The rule `kmeans` on debiased products instead of distances.

    A squared distance between two uploads carries D (tau_i^2 + tau_j^2) of their noise, which differs from user to
    user by more than groups do. Products of two users' steps carry none of it, and the noise is known.
    """

    paper: ClassVar[str] = "central k-means, with noise accounted for (none)"
    computes: ClassVar[str] = "one more local step, from the common model"
    air: ClassVar[str] = "one more upload of every user"
    limits: ClassVar[str] = "rotated images, and every round costs another upload"
    sees: ClassVar[str] = "stations see every user's noised upload and its task; users learn their task"
    costs: ClassVar[str] = "one more noised upload of every user in every round in which tasks may change, charged"
    suits: ClassVar[str] = (
        "groups whose gradients at one common model differ; noise may exceed the differences weight by weight. Not"
        " where budgets are tight: every user pays in every round, served or not"
    )

    def clusters(self, uploads: Gathered, tasks: int, rng: np.random.Generator) -> Ints:
        """The cluster of each upload, (n,), in the partition whose parts agree best; some may be empty."""
        products = debiased_products(uploads.start - uploads.weights, uploads.noise_std)
        return best_partition(shrink_lengths(products), uploads.samples.astype(np.float64), tasks, rng)
