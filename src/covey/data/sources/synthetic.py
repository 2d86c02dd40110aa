"""`synthetic`: Gaussian class clusters, generated in any amount."""

from __future__ import annotations

import numpy as np

from covey.data.sources.base import Source, held_out
from covey.data.types import Dataset, Features, Labels
from covey.scenario.schema import Data
from covey.seeding import generator

#: Samples per class of the data set itself; users get fresh samples, as many as they need.
POOL_PER_CLASS = 200


def load(data: Data, seed: int) -> Dataset:
    """Class c is N(centre_c, noise^2 I), with centres drawn from N(0, I) in `data.features` dimensions."""
    centres = generator(seed, "synthetic").standard_normal((data.classes, data.features), dtype=np.float32)

    def draw(y: Labels, rng: np.random.Generator) -> Features:
        x = rng.standard_normal((len(y), data.features), dtype=np.float32)
        x *= np.float32(data.noise)
        x += centres[y]
        return x

    y = np.repeat(np.arange(data.classes, dtype=np.int64), POOL_PER_CLASS)
    return Dataset(
        name="synthetic",
        x=draw(y, generator(seed, "synthetic", round=1)),
        y=y,
        test=held_out(y),
        classes=tuple(str(c) for c in range(data.classes)),
        source=f"generated from seed {seed}",
        draw=draw,
    )


SOURCE = Source(
    name="synthetic",
    about="Gaussian class clusters of any size (data.features, data.classes, data.noise)",
    how_to_get="generated, nothing to fetch",
    load=load,
)
