"""idx files, the format of MNIST and of the data sets made after it: found, read and joined to a data set."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.sources.base import data_root, missing
from covey.data.types import Dataset
from covey.errors import DataError
from covey.scenario.schema import Data

IMAGES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
LABELS = {"train": "train-labels-idx1-ubyte", "test": "t10k-labels-idx1-ubyte"}


@dataclass(frozen=True)
class IdxImages:
    """Grey images and labels in four idx files, plain or gzipped.

    folders: below the data folder; the first that holds training images is used. mean, std: public constants of
    pixels in 0..1. how_to_get: what an error advises.
    """

    name: str
    classes: tuple[str, ...]
    folders: tuple[str, ...]
    mean: float
    std: float
    how_to_get: str

    def find(self, path: str | None, system: Sequence[Path] = ()) -> Path | None:
        """The folder that holds the idx files.

        The files of all idx data sets have the same names, so that files right in the data folder are taken only when
        the scenario's `path` points there. `system`, folders of a system's package, count only without a path.
        """
        root = data_root(path)
        places = [*(root / folder for folder in self.folders), *([root] if path is not None else system)]
        return next((place for place in places if idx_file(place, IMAGES["train"]) is not None), None)

    def load(self, data: Data, system: Sequence[Path] = ()) -> Dataset:
        """All images (N, 1, H, W), training images first, each half in the order of its file; test images held out."""
        place = self.find(data.path, system)
        if place is None:
            raise missing(self.name, data.path, self.how_to_get)
        images = {half: self.read(place, name, dimensions=3) for half, name in IMAGES.items()}
        labels = {half: self.read(place, name, dimensions=1) for half, name in LABELS.items()}
        for half in ("train", "test"):
            if len(images[half]) != len(labels[half]):
                raise DataError(
                    f"{place}: there are {len(images[half])} {half} images, but {len(labels[half])} labels; the files"
                    f" do not belong together: remove them and {self.how_to_get}"
                )
        if images["train"].shape[1:] != images["test"].shape[1:]:
            raise DataError(
                f"{place}: training and test images differ in size; the files do not belong together: remove them and"
                f" {self.how_to_get}"
            )
        y = np.concatenate([labels["train"], labels["test"]]).astype(np.int64)
        return Dataset(
            name=self.name,
            x=np.concatenate([images["train"], images["test"]])[:, None],
            y=y,
            test=np.arange(len(y)) >= len(labels["train"]),
            classes=self.classes,
            source=str(place),
            scale=255.0,
            mean=(self.mean,),
            std=(self.std,),
        )

    def count(self, place: Path) -> int:
        """Number of samples, from the labels alone."""
        return sum(len(self.read(place, name, dimensions=1)) for name in LABELS.values())

    def read(self, folder: Path, name: str, *, dimensions: int) -> NDArray[np.uint8]:
        """The bytes of an idx file (plain or .gz) as an array of the shape its header gives."""
        path = idx_file(folder, name)
        if path is None:
            raise DataError(f"{folder / name} (or {name}.gz) is missing; {self.how_to_get}")
        try:
            raw = idx_bytes(path)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is damaged or incomplete ({error}); remove it and {self.how_to_get}") from None
        header = 4 + 4 * dimensions
        magic = bytes([0, 0, 8, dimensions])  # 8 stands for unsigned bytes
        if raw[:4] != magic:
            raise DataError(
                f"{path} starts with {raw[:4].hex() or 'nothing'}, but this idx file must start with {magic.hex()};"
                f" remove it and {self.how_to_get}"
            )
        shape = tuple(int(n) for n in np.frombuffer(raw[4:header], ">u4")) if len(raw) >= header else ()
        expected = header + math.prod(shape)
        if not shape or len(raw) != expected:
            raise DataError(
                f"{path} has {len(raw):,} bytes, but its header asks for {expected:,}; it is damaged or incomplete:"
                f" remove it and {self.how_to_get}"
            )
        values: NDArray[Any] = np.frombuffer(raw, np.uint8, offset=header)
        return values.reshape(shape)


def idx_file(folder: Path, name: str) -> Path | None:
    """The file of this name in a folder, plain or gzipped; plain is preferred."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def idx_bytes(path: Path) -> bytes:
    """What an idx file holds, unpacked where it is gzipped."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
