"""The interface of a data source, and where files are searched."""

from __future__ import annotations

import enum
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.types import Dataset, Labels
from covey.errors import DataError
from covey.scenario.schema import Data
from covey.seeding import generator

#: Loads a data set, given the scenario's data section and the run's seed.
Loader = Callable[[Data, int], Dataset]


class Stream(enum.IntEnum):
    """The separate random streams of the purpose `partition`, used as its round number."""

    SHARES = 0
    DEAL = 1
    TEST = 2
    ORDER = 3
    HELD_OUT = 4


#: Share of the samples held out for testing where a data set has no official test split.
HELD_OUT = 0.2


@dataclass(frozen=True)
class Source:
    """A data set by name: how it is found, read, counted and obtained.

    find: maps the path of the scenario (or None) to the location of the files, None when they are missing;
    count: maps that location to the number of samples, None when counting would mean reading everything.
    A source without `find` needs no files.
    """

    name: str
    about: str
    how_to_get: str
    load: Loader
    find: Callable[[str | None], Path | None] | None = None
    count: Callable[[Path], int | None] = lambda place: None


def data_root(path: str | None = None) -> Path:
    """The folder data sets are looked for in: `path`, else the COVEY_DATA folder, else ~/.cache/covey."""
    chosen = path or os.environ.get("COVEY_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "covey"


def missing(name: str, path: str | None, how_to_get: str) -> DataError:
    """The error for a data set whose files are not where they were looked for."""
    return DataError(f"data set '{name}' is not in {data_root(path)}; {how_to_get}")


def held_out(y: Labels) -> NDArray[np.bool_]:
    """A fixed test split of about 20 % of every class: (N,), the same for every seed and machine."""
    test = np.zeros(len(y), np.bool_)
    rng = generator(0, "partition", round=Stream.HELD_OUT)
    for c in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == c))
        test[rows[: round(HELD_OUT * len(rows))]] = True
    return test


def read_npz(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Those of the named arrays that an npz file holds; pickled objects are never loaded."""
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path} holds one array; an npz file with several named arrays is needed")
        with archive:
            return {name: archive[name] for name in names if name in archive}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as npz ({error}); save it with numpy.savez, without objects") from None
