"""Data sets by name: built in, provided by installed packages, or registered by a program."""

from __future__ import annotations

from covey.data.sources.base import Loader, Source, data_root
from covey.part_checks import why_not_callable
from covey.parts import DATASETS


def source_of(name: str) -> Source:
    """The data set of this name; a bare loader, `loader(data, seed)`, is wrapped in a `Source`."""
    part = DATASETS.get(name)
    if isinstance(part, Source):
        return part
    if not callable(part):
        raise DATASETS.refused(name, f"is {part!r}, which is neither a Source nor a loader")
    if why := why_not_callable(part, 2):
        raise DATASETS.refused(name, f"{why}; a loader is called with the data section and the seed")
    about = (part.__doc__ or "a custom loader").strip().splitlines()[0]
    return Source(name=name, about=about, how_to_get="made by its loader, nothing to fetch", load=part)


def register_dataset(name: str, loader: Loader) -> None:
    """Makes `data.name = name` work in scenarios: `loader(data, seed)` returns the `Dataset`.

    `data` is the scenario's data section (`data.path` is free for the loader's use). A name can be
    registered again, which replaces it; the built-in names cannot.
    """
    DATASETS.register(name, loader)


__all__ = ["Loader", "Source", "data_root", "register_dataset", "source_of"]
