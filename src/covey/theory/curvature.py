"""Largest and mean curvature of a loss: bounded exactly for softmax regression, estimated elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curvature:
    """Curvature of a loss: `largest` eigenvalue L of the Hessian, and the `mean` of all eigenvalues.

    A step d costs at most L ||d||^2 / 2; isotropic noise has no preferred direction and costs the mean times
    E||n||^2 / 2. `kind` is `bound` if both hold everywhere, `estimate` if they were measured along one path.
    """

    largest: float
    mean: float
    kind: Literal["bound", "estimate"]


def softmax_curvature(features: ArrayLike, classes: int) -> Curvature:
    """Curvature of the mean cross-entropy of softmax regression with a bias, valid at all weights.

    features: (n, F). The Hessian in the outputs, diag(p) - p p^T, is at most (I - 1 1^T / C) / 2 whatever the
    probabilities; with M the second moments of the features and a constant 1, the Hessian in the weights is at
    most its Kronecker product with M. So L = largest eigenvalue of M / 2, and the mean is (C - 1) / 2 x trace(M) /
    (C (F + 1)). There is no lower bound above 0: without a penalty on weights the loss is not strongly convex.
    """
    values = np.asarray(features, dtype=np.float64)
    if values.ndim != 2 or len(values) == 0 or classes < 2:
        raise ValueError(
            f"features have shape {values.shape} for {classes} classes; give (samples, features), 2 or more"
        )
    extended = np.concatenate([values, np.ones((len(values), 1))], axis=1)
    moments = extended.T @ extended / len(values)
    largest = 0.5 * float(np.linalg.eigvalsh(moments)[-1])
    mean = 0.5 * (classes - 1) * float(np.trace(moments)) / (classes * extended.shape[1])
    return Curvature(largest, mean, "bound")


def estimated_curvature(
    product: Callable[[Array], Array],
    start: Array,
    rng: np.random.Generator,
    *,
    iterations: int = 20,
    tolerance: float = 0.01,
    probes: int = 4,
) -> tuple[Curvature, Array]:
    """Curvature at one point from Hessian-vector products, and the direction in which it is largest.

    product: v (D,) to Hessian times v. start: (D,) first direction; the one found at a nearby point saves
    iterations. Power iteration finds the eigenvalue of largest magnitude, from below; the mean is Hutchinson's
    estimate from `probes` random sign vectors. Stops when the eigenvalue moves by less than `tolerance` of itself.
    """
    vector, size = _unit(start, rng), 0.0
    for _ in range(iterations):
        image = np.asarray(product(vector), dtype=np.float64)
        found = float(np.linalg.norm(image))
        if found == 0.0:
            break
        vector, previous, size = image / found, size, found
        if abs(size - previous) <= tolerance * size:
            break
    signs = rng.choice((-1.0, 1.0), size=(probes, len(vector)))
    traces = [float(probe @ product(probe)) for probe in signs]
    mean = max(0.0, float(np.mean(traces)) / len(vector)) if traces else size
    return Curvature(size, min(mean, size), "estimate"), vector


def largest_of(curvatures: list[Curvature]) -> Curvature:
    """The largest of several curvatures, for example of all points where one was estimated."""
    exact = all(c.kind == "bound" for c in curvatures)
    largest, mean = max(c.largest for c in curvatures), max(c.mean for c in curvatures)
    return Curvature(largest, mean, "bound" if exact else "estimate")


def _unit(start: Array, rng: np.random.Generator) -> Array:
    norm = float(np.linalg.norm(start))
    if norm > 0:
        return np.asarray(start / norm, dtype=np.float64)
    drawn = rng.standard_normal(len(start))
    return np.asarray(drawn / np.linalg.norm(drawn))
