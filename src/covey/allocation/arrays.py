"""Array types of the allocation package, and the one layout that compiled kernels take."""

from __future__ import annotations

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
