"""Data sets and their partition: `load_dataset` reads one, `partition` splits it over the users of a scenario."""

from __future__ import annotations

from covey.data.partitions import check_groups, partition
from covey.data.sources import Source, data_root, register_dataset, source_of
from covey.data.types import Dataset, UserData
from covey.errors import DataError
from covey.faults import Named, named_faults
from covey.parts import DATASETS
from covey.scenario.schema import Data


def load_dataset(data: Data, *, groups: int | None = None, seed: int = 0) -> Dataset:
    """The data set that a scenario's data section names.

    `groups` is the number of groups it will be dealt to, by default what `data` says, checked against
    `data.partition` before anything is read. `seed` matters to generated data only. Raises `DataError`
    with the command to run when files are missing.
    """
    check_groups(data, data.group_count or 1 if groups is None else groups)
    source = source_of(data.name)
    with named_faults(lambda: [Named(DATASETS, data.name, source.load)], "when it was loaded"):
        dataset = source.load(data, seed)
    if not isinstance(dataset, Dataset):
        raise DataError(f"the loader of '{data.name}' returned {type(dataset).__name__}, not a covey.data.Dataset")
    return dataset


__all__ = [
    "Dataset",
    "Source",
    "UserData",
    "data_root",
    "load_dataset",
    "partition",
    "register_dataset",
    "source_of",
]
