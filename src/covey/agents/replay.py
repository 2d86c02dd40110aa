"""The replay buffer: transitions in ring-buffer arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Memory limit of a replay buffer; with larger networks it holds fewer transitions.
MAX_BYTES = 256 * 2**20

Arrays = dict[str, NDArray[Any]]


class Replay:
    """A ring buffer of at most `capacity` transitions; a transition is one row of each array of `example`."""

    def __init__(self, capacity: int, example: Arrays) -> None:
        row_bytes = sum(int(array[0].nbytes) for array in example.values())
        self.capacity: int = max(1, min(capacity, MAX_BYTES // max(row_bytes, 1)))
        self.arrays: Arrays = {
            name: np.zeros((self.capacity, *array.shape[1:]), dtype=array.dtype) for name, array in example.items()
        }
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, rows: Arrays) -> None:
        """Append rows, replacing the oldest."""
        count = len(next(iter(rows.values())))
        place = (self.added + np.arange(count)) % self.capacity
        for name, array in rows.items():
            self.arrays[name][place] = array
        self.added += count

    def sample(self, count: int, rng: np.random.Generator) -> Arrays:
        """`count` rows drawn with replacement; all rows, in order, if there are no more."""
        if count >= len(self):
            return {name: array[: len(self)] for name, array in self.arrays.items()}
        chosen = rng.integers(len(self), size=count)
        return {name: array[chosen] for name, array in self.arrays.items()}

    def clear(self) -> None:
        """Empty the buffer."""
        self.added = 0
