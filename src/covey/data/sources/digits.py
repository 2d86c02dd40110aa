"""`digits`: scikit-learn's bundled 1,797 real 8x8 digits, always available."""

from __future__ import annotations

import numpy as np

from covey.data.sources.base import Source, held_out
from covey.data.types import Dataset
from covey.scenario.schema import Data


def load(data: Data, seed: int) -> Dataset:
    """The 1,797 digits as (N, 1, 8, 8) images with 17 levels of ink; about 20 % of each class held out."""
    from sklearn.datasets import load_digits  # imported here: scikit-learn takes a second to load

    bunch = load_digits()
    y = bunch.target.astype(np.int64)
    return Dataset(
        name="digits",
        x=bunch.images.astype(np.uint8)[:, None],
        y=y,
        test=held_out(y),
        classes=tuple(str(c) for c in range(10)),
        source="scikit-learn",
        scale=16.0,
        mean=(0.305,),
        std=(0.376,),
    )


SOURCE = Source(
    name="digits",
    about="1,797 real handwritten digits, 8x8, grey",
    how_to_get="comes with scikit-learn, nothing to fetch",
    load=load,
    count=lambda place: 1797,
)
