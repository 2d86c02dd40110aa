"""Compilation of the loops that are too slow in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

try:
    import numba as _numba

    numba: Any = _numba
except ImportError:  # optional: everything runs without it, only slower
    numba = None

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function as machine code, made at its first call and kept on disk for the next process.

    Rounding is that of NumPy: no reordered sums, no fused operations. A kernel may call kernels of its own file
    only, because the copy on disk is renewed when that file changes and not when another one does. Arrays handed
    in from Python go through `dense` first: every other layout would be compiled anew.

    Without numba the function itself runs, with the same bits and as silently: a kernel computes with NumPy's types,
    in which integers wrap around and a division by 0 gives infinity. So that both forms agree, a kernel multiplies a
    float32 by an `np.float64`, never by a Python float, which would take the lower precision in Python only.
    """
    if numba is None:
        return np.errstate(all="ignore")(function)
    try:
        kernel = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep the machine code in: compile in every process
        kernel = numba.njit(error_model="numpy")(function)
    return cast(F, kernel)
