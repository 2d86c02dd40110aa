"""Array types, and the memory layout that compiled kernels require."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view of an array that cannot be written; the array itself if it cannot be written anyway."""
    if not values.flags.writeable:
        return values
    view = values.view()
    view.flags.writeable = False
    return view


def make_read_only(holder: object) -> None:
    """Replace all arrays of a frozen dataclass by read-only views."""
    for name, value in vars(holder).items():
        if isinstance(value, np.ndarray):
            object.__setattr__(holder, name, read_only(value))


def dense(values: npt.ArrayLike, kind: type[np.generic]) -> npt.NDArray[Any]:
    """The values as a C-contiguous, writeable array of this dtype; copied only if necessary."""
    # Small networks spend more time on conversions than on arithmetic.
    if type(values) is np.ndarray and values.dtype.type is kind and values.dtype.isnative and values.flags.carray:
        return values
    array = np.asarray(values, dtype=kind)
    return array if array.flags.carray else array.copy(order="C")


def joined(values: npt.ArrayLike, kind: type[np.generic], core: int) -> npt.NDArray[Any]:
    """`dense` values with all axes before the last `core` flattened into one, (N, ...); N is 1 if there are none."""
    array = dense(values, kind)
    split = array.ndim - core
    # A batch already has this shape: skip the reshape, whose overhead counts for small networks.
    return array if split == 1 else array.reshape(math.prod(array.shape[:split]), *array.shape[split:])


def parted(array: npt.NDArray[Any], leading: tuple[int, ...]) -> npt.NDArray[Any]:
    """The inverse of `joined`: an array (N, ...) with these leading axes instead of N."""
    return array if len(leading) == 1 else array.reshape(*leading, *array.shape[1:])
