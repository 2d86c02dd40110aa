"""Compilation of the loops that are too slow in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function as machine code, made at its first call and kept on disk for the next process.

    Rounding is that of NumPy: no reordered sums, no fused operations. A kernel may call kernels of its own file
    only, because the copy on disk is renewed when that file changes and not when another one does. Arrays handed
    in from Python go through `dense` first: every other layout would be compiled anew.
    """
    try:
        kernel = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep the machine code in: compile in every process
        kernel = numba.njit(error_model="numpy")(function)
    return cast(F, kernel)
