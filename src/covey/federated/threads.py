"""Thread count and allocator settings of a compute process."""

from __future__ import annotations

import contextlib
import ctypes
import platform
from collections.abc import Iterator

import torch

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Context in which PyTorch uses one thread; the previous thread count is restored on exit.

    With several threads the order of summation varies, and the last bits with it; with one it is fixed.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def tune_allocator() -> bool:
    """Keep freed memory in this process instead of returning it to the system; returns whether that worked.

    Large temporary arrays then no longer cost a page fault per 4 kB each time they are allocated. The setting
    holds for the life of the process and exists in glibc only.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(_M_MMAP_MAX, 0)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
