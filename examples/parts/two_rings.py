"""A data set in one file: points on two rings, one class each, in the plane.

covey run quick --set data.name=examples.parts.two_rings:load --set data.mixes=default --set network.tasks=2
"""

from __future__ import annotations

import numpy as np

from covey.data import Dataset
from covey.scenario.schema import Data

#: Samples of each class.
SAMPLES = 2000


def load(data: Data, seed: int) -> Dataset:
    """The data set that `data.name` names; the seed is the run's, so that every run draws its own rings."""
    rng = np.random.default_rng([seed, 7])
    y = np.repeat([0, 1], SAMPLES)
    angle = rng.uniform(0.0, 2.0 * np.pi, len(y))
    radius = 1.0 + y + 0.1 * rng.standard_normal(len(y))
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)
    test = rng.random(len(y)) < 0.2
    return Dataset(name="two_rings", x=x, y=y.astype(np.int64), test=test, classes=("inner", "outer"))
