"""Threads and memory of a process that computes."""

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
    """Compute with one thread inside, and with as many as before afterwards.

    The order in which threads add numbers shows in the last bits; one thread always has the same.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def tune_allocator() -> bool:
    """Keep freed memory in this process instead of returning it to the system; whether that was possible.

    Large temporary arrays then stop costing a page fault for every 4 kB each time they are made. It
    lasts as long as the process, and only glibc has it.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(_M_MMAP_MAX, 0)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
