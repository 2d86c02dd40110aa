"""Array types, and the one layout that compiled kernels take."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def dense(values: npt.ArrayLike, kind: type[np.generic]) -> npt.NDArray[Any]:
    """The values as an array of this type, contiguous and writeable; copied only where they are not."""
    array = np.asarray(values, dtype=kind)
    return array if array.flags.carray else array.copy(order="C")


def joined(values: npt.ArrayLike, kind: type[np.generic], core: int) -> npt.NDArray[Any]:
    """`dense` values with all axes before the last `core` joined to one, (N, ...); N is 1 where there are none."""
    array = dense(values, kind)
    split = array.ndim - core
    # A batch is so already, and one network of a batch of one is the case whose overhead counts.
    return array if split == 1 else array.reshape(math.prod(array.shape[:split]), *array.shape[split:])
