"""`mnist`: the four idx files, from a folder."""

from __future__ import annotations

from covey.data.sources.base import Source
from covey.data.sources.idx import IdxImages
from covey.data.types import Dataset
from covey.scenario.schema import Data

MNIST = IdxImages(
    name="mnist",
    classes=tuple("0123456789"),
    # The second is where torchvision puts them.
    folders=("mnist", "MNIST/raw"),
    mean=0.1307,
    std=0.3081,
    how_to_get="run `covey data fetch mnist`, or put the four idx files in mnist/ in that folder",
)


def load(data: Data, seed: int) -> Dataset:
    """70,000 grey images (N, 1, 28, 28) in the order of the files, the official 10,000 test images held out."""
    return MNIST.load(data)


SOURCE = Source(
    name="mnist",
    about="70,000 handwritten digits, 28x28, grey, 10 classes",
    how_to_get="covey data fetch mnist",
    load=load,
    find=MNIST.find,
    count=MNIST.count,
)
