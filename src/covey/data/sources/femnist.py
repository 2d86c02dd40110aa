"""`femnist`: handwritten digits and letters by writer, as LEAF's JSON or one compact npz file."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.sources.base import Source, data_root, missing, read_npz
from covey.data.types import Dataset
from covey.errors import DataError
from covey.scenario.schema import Data

CLASSES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
SIDE = 28
PADDING = 2  # to 32x32, so that the network built for CIFAR-10 fits

HOW_TO_GET = (
    "make it with LEAF's femnist scripts (`preprocess.sh -s niid --sf 0.05 -k 0 -t sample`) and copy its data/train"
    " and data/test to femnist/train and femnist/test in that folder, or put a femnist*.npz there"
)

Parts = tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any], NDArray[Any]]


def find(path: str | None) -> Path | None:
    """The npz file, or the folder with LEAF's train/ and test/."""
    root = data_root(path)
    if root.is_file():
        return root
    archives = sorted(root.glob("femnist*.npz"))
    if len(archives) > 1:
        raise DataError(
            f"{root} holds several FEMNIST files ({', '.join(a.name for a in archives)}); set data.path to one of them"
        )
    if archives:
        return archives[0]
    for place in (root / "femnist", root / "femnist" / "data", root, root / "data"):
        if any((place / "train").glob("*.json")):
            return place
    return None


def load(data: Data, seed: int) -> Dataset:
    """Characters as (N, 1, 32, 32) images, bright ink on 0, in 62 classes, with the writer of each."""
    place = find(data.path)
    if place is None:
        raise missing("femnist", data.path, HOW_TO_GET)
    paper, y, writer, test = _read_npz(place) if place.is_file() else _read_leaf(place)
    if y.dtype.kind not in "iu" or not np.isin(test, (0, 1)).all():
        raise DataError(f"{place}: y must be integers and test 0 or 1; found {y.dtype} and {test.dtype}")
    x = np.zeros((len(paper), 1, SIDE + 2 * PADDING, SIDE + 2 * PADDING), np.uint8)
    x[:, 0, PADDING:-PADDING, PADDING:-PADDING] = 255 - paper  # files have dark ink on white 255
    return Dataset(
        name="femnist",
        x=x,
        y=y.astype(np.int64),
        test=test.astype(np.bool_),
        classes=CLASSES,
        writer=writer.astype(np.int64),
        source=str(place),
        scale=255.0,
        mean=(0.03,),
        std=(0.145,),
    )


def _read_npz(path: Path) -> Parts:
    names = ("x", "y", "writer", "test")
    arrays = read_npz(path, names)
    lacking = [name for name in names if name not in arrays]
    if lacking:
        raise DataError(f"{path} has no array '{lacking[0]}'; a FEMNIST npz holds x, y, writer and test")
    x = arrays["x"]
    if x.dtype != np.uint8 or x.shape[1:] != (SIDE, SIDE):
        raise DataError(f"{path}: x is {x.dtype} of shape {x.shape}; it must be uint8 of shape (n, {SIDE}, {SIDE})")
    return x, arrays["y"], arrays["writer"], arrays["test"]


def _read_leaf(folder: Path) -> Parts:
    writers: dict[str, int] = {}
    images, labels, owners, halves = [], [], [], []
    for half in ("train", "test"):
        files = sorted((folder / half).glob("*.json"))
        if not files:
            raise DataError(f"{folder / half} has no *.json file; LEAF writes data/train and data/test, copy both")
        for file in files:
            for name, x, y in _leaf_users(file):
                images.append(x)
                labels.append(y)
                owners.append(np.full(len(y), writers.setdefault(name, len(writers))))
                halves.append(np.full(len(y), half == "test"))
    return np.concatenate(images), np.concatenate(labels), np.concatenate(owners), np.concatenate(halves)


def _leaf_users(file: Path) -> list[tuple[str, NDArray[np.uint8], NDArray[np.int64]]]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        entries = [(str(u), content["user_data"][u]["x"], content["user_data"][u]["y"]) for u in content["users"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} cannot be read as LEAF JSON ({type(error).__name__}: {error}); it must hold 'users' and"
            " 'user_data' with 'x' and 'y' for each user"
        ) from None
    users = []
    for user, x, y in entries:
        try:
            pixels, labels = np.asarray(x, np.float64), np.asarray(y)
        except (ValueError, TypeError):
            raise DataError(f"{file}: the images of user {user} do not all have {SIDE * SIDE} numbers") from None
        if pixels.shape != (len(labels), SIDE * SIDE):
            raise DataError(
                f"{file}: user {user} has x of shape {pixels.shape} and {len(labels)} labels; it must be"
                f" ({len(labels)}, {SIDE * SIDE})"
            )
        if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 1):
            raise DataError(f"{file}: user {user} has pixels outside 0 to 1")
        if labels.dtype.kind not in "iu":
            raise DataError(f"{file}: user {user} has labels that are not integers")
        grey = np.rint(pixels * 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
        users.append((user, grey, labels.astype(np.int64)))
    return users


def _count(place: Path) -> int | None:
    if place.is_file():
        return len(_read_npz(place)[1])
    return None


SOURCE = Source(
    name="femnist",
    about="handwritten digits and letters by writer, 32x32, grey, 62 classes",
    how_to_get="LEAF's scripts or a femnist*.npz (docs/data.md)",
    load=load,
    find=find,
    count=_count,
)
