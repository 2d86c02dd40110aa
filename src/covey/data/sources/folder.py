"""`folder`: a user's own arrays, as x.npy and y.npy in a folder or in one npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.sources.base import Source, held_out, read_npz
from covey.data.types import Dataset
from covey.errors import DataError
from covey.scenario.schema import Data

ARRAYS = ("x", "y", "test", "writer", "classes")


def load(data: Data, seed: int) -> Dataset:
    """The arrays at `data.path`; about 20 % of every class is held out when there is no `test`."""
    place = Path(data.path or "").expanduser()
    if data.path is None or not place.exists():
        raise DataError(f"there is no '{data.path}'; set data.path to a folder with x.npy and y.npy, or to a .npz")
    arrays = read_npz(place, ARRAYS) if place.is_file() else _from_files(place)
    for name in ("x", "y"):
        if name not in arrays:
            raise DataError(
                f"{place} has no '{name}'; save it with numpy.save as {name}.npy, or in the npz as '{name}'"
            )
    x, y = arrays["x"], _integers(arrays["y"], "y", place)
    if x.dtype.kind == "f":
        with np.errstate(over="ignore"):  # overflow becomes infinity, which `Dataset` rejects
            x = x.astype(np.float32)
    if y.size == 0 or y.min() < 0:
        raise DataError(f"{place}: y must hold at least one label, and labels are numbered from 0")
    writer = _integers(arrays["writer"], "writer", place) if "writer" in arrays else None
    names = arrays.get("classes")
    classes = tuple(str(c) for c in (range(int(y.max()) + 1) if names is None else names.ravel()))
    pixels = x.dtype == np.uint8
    return Dataset(
        name="folder",
        x=x,
        y=y,
        test=_flags(arrays["test"], place) if "test" in arrays else held_out(y),
        classes=classes,
        writer=writer,
        source=str(place),
        # Bytes become -1..1; floats are taken as they are.
        scale=255.0 if pixels else 1.0,
        mean=(0.5,) if pixels else (0.0,),
        std=(0.5,) if pixels else (1.0,),
    )


def _from_files(folder: Path) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for name in ARRAYS[:-1]:
        path = folder / f"{name}.npy"
        if not path.is_file():
            continue
        try:
            arrays[name] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} cannot be read ({error}); save it with numpy.save, without objects") from None
    names = folder / "classes.txt"
    if names.is_file():
        try:
            text = names.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{names} is not UTF-8 text; write one class name per line") from None
        arrays["classes"] = np.array([line.strip() for line in text.splitlines() if line.strip()])
    return arrays


def _integers(array: NDArray[Any], name: str, place: Path) -> NDArray[np.int64]:
    if array.dtype.kind not in "iu":
        raise DataError(f"{place}: {name} has dtype {array.dtype}; it must be integers, for example int64")
    return array.astype(np.int64)


def _flags(array: NDArray[Any], place: Path) -> NDArray[np.bool_]:
    if array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all():
        raise DataError(f"{place}: test has dtype {array.dtype}; it must be bool, True for held-out samples")
    return array.astype(np.bool_)


SOURCE = Source(
    name="folder",
    about="your own arrays: data.path is a folder with x.npy and y.npy, or a .npz",
    how_to_get="save your arrays (docs/data.md)",
    load=load,
    find=lambda path: Path(path).expanduser() if path and Path(path).expanduser().exists() else None,
)
