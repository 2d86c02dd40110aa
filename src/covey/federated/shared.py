"""Named arrays in shared memory, created by one process and mapped by others without copying."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.errors import CoveyError

Layout = tuple[tuple[str, tuple[int, ...], str, int], ...]

_ALIGNMENT = 64
_SYSTEM_FOLDER = Path("/dev/shm")


@dataclass(frozen=True)
class Handle:
    """Identifies the arrays to another process: the block's name and each array's offset in it."""

    name: str
    layout: Layout


class SharedArrays:
    """Arrays by name in one block of shared memory; the process that created the block also unlinks it."""

    def __init__(self, block: SharedMemory, layout: Layout, *, owner: bool) -> None:
        self._block = block
        self._owner = owner
        self.handle = Handle(block.name, layout)
        self.arrays: dict[str, npt.NDArray[Any]] = {
            name: np.ndarray(shape, dtype, block.buf, start) for name, shape, dtype, start in layout
        }

    @classmethod
    def create(cls, shapes: dict[str, tuple[tuple[int, ...], npt.DTypeLike]]) -> SharedArrays:
        """New arrays of these shapes and types, all zeros."""
        layout, end = [], 0
        for name, (shape, dtype) in shapes.items():
            layout.append((name, shape, np.dtype(dtype).str, end))
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        _check_space(end)
        return cls(SharedMemory(create=True, size=max(end, 1)), tuple(layout), owner=True)

    @classmethod
    def attach(cls, handle: Handle) -> SharedArrays:
        """Map the arrays that another process created."""
        return cls(SharedMemory(handle.name), handle.layout, owner=False)

    def close(self) -> None:
        """Unmap the arrays, which must not be used any more, and unlink the block if this process created it."""
        self.arrays.clear()
        if self._owner:
            self._owner = False
            self._block.unlink()
        self._block.close()


def _check_space(size: int) -> None:
    # Writing past the free space kills the process with SIGBUS and no message, so it is checked first.
    if _SYSTEM_FOLDER.is_dir():
        free = shutil.disk_usage(_SYSTEM_FOLDER).free
        if size > free:
            raise CoveyError(
                f"worker processes need {size / 2**20:.0f} MB of shared memory, but {_SYSTEM_FOLDER} has"
                f" {free / 2**20:.0f} MB free; enlarge it (for containers: --shm-size) or use 1 worker"
            )
