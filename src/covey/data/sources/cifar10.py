"""`cifar10`: the official binary batches or the official Python batches, from a folder."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.sources.base import Source, data_root, missing
from covey.data.types import Dataset, Labels
from covey.errors import DataError
from covey.scenario.schema import Data

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
RECORDS = 10_000
PIXELS = 3 * 32 * 32
RECORD_BYTES = 1 + PIXELS

HOW_TO_GET = "run `covey data fetch cifar10`, or set data.path to a folder with the official batches"

Batch = tuple[NDArray[np.uint8], Labels]


def find(path: str | None) -> Path | None:
    """The folder that holds the batches in either official format; binary is preferred."""
    root = data_root(path)
    places = [root, *sorted(root.glob("cifar-10-batches*")), *sorted(root.glob("package/cifar-10-batches*"))]
    for suffix in (".bin", ""):
        for place in places:
            if any((place / (batch + suffix)).is_file() for batch in BATCHES):
                return place
    return None


def load(data: Data, seed: int) -> Dataset:
    """60,000 colour images (N, 3, 32, 32), the official 10,000 test images held out."""
    place = find(data.path)
    if place is None:
        raise missing("cifar10", data.path, HOW_TO_GET)
    binary = any((place / f"{batch}.bin").is_file() for batch in BATCHES)
    batches = [read_binary(place / f"{b}.bin") if binary else read_python(place / b) for b in BATCHES]
    test = np.zeros(sum(len(y) for _, y in batches), np.bool_)
    test[-len(batches[-1][1]) :] = True
    return Dataset(
        name="cifar10",
        x=np.concatenate([x for x, _ in batches]),
        y=np.concatenate([y for _, y in batches]),
        test=test,
        classes=CLASSES,
        source=str(place),
        scale=255.0,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    )


def read_binary(path: Path) -> Batch:
    """Images (RECORDS, 3, 32, 32) and labels of one `*.bin` batch: records of a label and 3,072 pixels."""
    _require(path)
    found, expected = path.stat().st_size, RECORDS * RECORD_BYTES
    if found != expected:
        raise DataError(
            f"{path} has {found:,} bytes, but a CIFAR-10 batch has {expected:,}; it is damaged or incomplete:"
            f" remove it and {HOW_TO_GET}"
        )
    records = np.fromfile(path, np.uint8).reshape(RECORDS, RECORD_BYTES)
    return _batch(path, records[:, 1:], records[:, 0])


def read_python(path: Path) -> Batch:
    """Images (RECORDS, 3, 32, 32) and labels of one pickled batch, read without running code from it."""
    _require(path)
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="bytes").load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(
            f"{path} has {path.stat().st_size:,} bytes and cannot be read ({error}); a CIFAR-10 batch has more than"
            f" {RECORDS * PIXELS:,} bytes: remove it and {HOW_TO_GET}"
        ) from None
    entries = content if isinstance(content, dict) else {}
    pixels = entries.get(b"data", entries.get("data"))
    labels = entries.get(b"labels", entries.get("labels"))
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or not isinstance(labels, (list, np.ndarray)):
        raise DataError(f"{path} is not a CIFAR-10 batch: it must hold 'data' (uint8 array) and 'labels' (list)")
    if pixels.shape != (RECORDS, PIXELS) or len(labels) != RECORDS:
        raise DataError(
            f"{path} holds data of shape {pixels.shape} and {len(labels)} labels, but a CIFAR-10 batch has"
            f" ({RECORDS}, {PIXELS}) and {RECORDS}; it is damaged or incomplete: remove it and {HOW_TO_GET}"
        )
    return _batch(path, pixels, np.asarray(labels))


def _batch(path: Path, pixels: NDArray[np.uint8], labels: NDArray[Any]) -> Batch:
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(CLASSES):
        raise DataError(f"{path} has labels outside 0 to {len(CLASSES) - 1}; it is not a CIFAR-10 batch or is damaged")
    # A record stores its planes red, green, blue, each row by row, so channels come first.
    return pixels.reshape(-1, 3, 32, 32), labels.astype(np.int64)


def _require(path: Path) -> None:
    if not path.is_file():
        raise DataError(f"{path} is missing from the CIFAR-10 folder; {HOW_TO_GET}")


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise DataError(f"a CIFAR-10 pickle asks for the codec '{encoding}', which is not allowed")
    return text.encode("latin1")


def _array_names() -> dict[tuple[str, str], Any]:
    reconstruct = np.empty(0).__reduce__()[0]
    names: dict[tuple[str, str], Any] = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        names[module, "_reconstruct"] = reconstruct
    names["_codecs", "encode"] = _latin1
    return names


class _ArraysOnly(pickle.Unpickler):
    """Loads arrays, bytes, text, lists and dictionaries; a pickle that names anything else is refused."""

    _allowed = _array_names()

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise DataError(
                f"a CIFAR-10 pickle asks for {module}.{name}, which is not an array; do not trust this file"
            ) from None


SOURCE = Source(
    name="cifar10",
    about="60,000 colour photographs, 32x32, 10 classes",
    how_to_get="covey data fetch cifar10",
    load=load,
    find=find,
    count=lambda place: RECORDS * len(BATCHES),
)
