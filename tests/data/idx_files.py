"""Small idx files for tests."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np

from covey.data.sources.idx import IMAGES, LABELS

PICTURES = np.random.default_rng(0).integers(0, 256, (5, 28, 28)).astype(np.uint8)
CLASSES = np.array([9, 0, 0, 3, 1], np.uint8)


def idx(array: Any) -> bytes:
    """An array of unsigned bytes as an idx file."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder: Path, *, packed: bool = False) -> Path:
    """The folder, with the four files of three training and two test images in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for half, rows in (("train", slice(0, 3)), ("test", slice(3, 5))):
        for name, array in ((IMAGES[half], PICTURES), (LABELS[half], CLASSES)):
            raw = idx(array[rows])
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(raw) if packed else raw)
    return folder
