"""`fashion_mnist`: the four idx files, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.sources.base import Source, data_root, missing
from covey.data.types import Dataset
from covey.errors import DataError
from covey.scenario.schema import Data

CLASSES = (
    "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
IMAGES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
LABELS = {"train": "train-labels-idx1-ubyte", "test": "t10k-labels-idx1-ubyte"}

#: Where Debian's package dataset-fashion-mnist puts the files.
SYSTEM_FOLDERS = (Path("/usr/share/datasets/fashion-mnist"), Path("/usr/share/dataset-fashion-mnist"))

HOW_TO_GET = (
    "run `covey data fetch fashion_mnist`, install Debian's package `dataset-fashion-mnist`, or put the four idx"
    " files in fashion-mnist/ in that folder"
)


def find(path: str | None) -> Path | None:
    """The folder that holds the idx files; without a path also where Debian's package puts them."""
    root = data_root(path)
    places = [root / "fashion-mnist", root / "fashion_mnist", root, *(SYSTEM_FOLDERS if path is None else ())]
    return next((place for place in places if _idx_file(place, IMAGES["train"]) is not None), None)


def load(data: Data, seed: int) -> Dataset:
    """70,000 grey images (N, 1, 28, 28), the official 10,000 test images held out."""
    place = find(data.path)
    if place is None:
        raise missing("fashion_mnist", data.path, HOW_TO_GET)
    images = {half: read_idx(place, name, dimensions=3) for half, name in IMAGES.items()}
    labels = {half: read_idx(place, name, dimensions=1) for half, name in LABELS.items()}
    for half in ("train", "test"):
        if len(images[half]) != len(labels[half]):
            raise DataError(f"{place}: there are {len(images[half])} {half} images, but {len(labels[half])} labels")
    if images["train"].shape[1:] != images["test"].shape[1:]:
        raise DataError(f"{place}: training and test images differ in size; the files do not belong together")
    y = np.concatenate([labels["train"], labels["test"]]).astype(np.int64)
    return Dataset(
        name="fashion_mnist",
        x=np.concatenate([images["train"], images["test"]])[:, None],
        y=y,
        test=np.arange(len(y)) >= len(labels["train"]),
        classes=CLASSES,
        source=str(place),
        scale=255.0,
        mean=(0.286,),
        std=(0.353,),
    )


def read_idx(folder: Path, name: str, *, dimensions: int) -> NDArray[np.uint8]:
    """The bytes of an idx file (plain or .gz) as an array of the shape its header gives."""
    path = _idx_file(folder, name)
    if path is None:
        raise DataError(f"{folder / name} (or {name}.gz) is missing; {HOW_TO_GET}")
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged or incomplete ({error}); remove it and {HOW_TO_GET}") from None
    header = 4 + 4 * dimensions
    magic = bytes([0, 0, 8, dimensions])  # 8 means unsigned bytes
    if raw[:4] != magic:
        raise DataError(f"{path} starts with {raw[:4].hex()}, but this idx file must start with {magic.hex()}")
    shape = tuple(int(n) for n in np.frombuffer(raw[4:header], ">u4")) if len(raw) >= header else ()
    expected = header + math.prod(shape)
    if not shape or len(raw) != expected:
        raise DataError(
            f"{path} has {len(raw):,} bytes, but its header implies {expected:,}; it is damaged or incomplete:"
            f" remove it and {HOW_TO_GET}"
        )
    values: NDArray[Any] = np.frombuffer(raw, np.uint8, offset=header)
    return values.reshape(shape)


def _idx_file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _count(place: Path) -> int:
    return sum(len(read_idx(place, name, dimensions=1)) for name in LABELS.values())


SOURCE = Source(
    name="fashion_mnist",
    about="70,000 pictures of clothes, 28x28, grey, 10 classes",
    how_to_get="covey data fetch fashion_mnist",
    load=load,
    find=find,
    count=_count,
)
