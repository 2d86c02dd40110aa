"""`fashion_mnist`: the four idx files, from a folder or from Debian's package."""

from __future__ import annotations

from pathlib import Path

from covey.data.sources.base import Source
from covey.data.sources.idx import IdxImages
from covey.data.types import Dataset
from covey.scenario.schema import Data

#: Where Debian's package dataset-fashion-mnist puts the files.
SYSTEM_FOLDERS = (Path("/usr/share/datasets/fashion-mnist"), Path("/usr/share/dataset-fashion-mnist"))

FASHION_MNIST = IdxImages(
    name="fashion_mnist",
    classes=(
        "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
    ),
    folders=("fashion-mnist", "fashion_mnist"),
    mean=0.286,
    std=0.353,
    how_to_get=(
        "run `covey data fetch fashion_mnist`, install Debian's package `dataset-fashion-mnist`, or put the four idx"
        " files in fashion-mnist/ in that folder"
    ),
)  # fmt: skip


def find(path: str | None) -> Path | None:
    """The folder that holds the idx files; without a path also where Debian's package puts them."""
    return FASHION_MNIST.find(path, SYSTEM_FOLDERS)


def load(data: Data, seed: int) -> Dataset:
    """70,000 grey images (N, 1, 28, 28), the official 10,000 test images held out."""
    return FASHION_MNIST.load(data, SYSTEM_FOLDERS)


SOURCE = Source(
    name="fashion_mnist",
    about="70,000 pictures of clothes, 28x28, grey, 10 classes",
    how_to_get="covey data fetch fashion_mnist",
    load=load,
    find=find,
    count=FASHION_MNIST.count,
)
