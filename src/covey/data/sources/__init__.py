"""Data sets by name: the ones covey knows and the ones a program registers."""

from __future__ import annotations

from covey.data.sources import cifar10, digits, fashion_mnist, femnist, folder, synthetic
from covey.data.sources.base import Loader, Source, data_root

BUILT_IN: dict[str, Source] = {
    module.SOURCE.name: module.SOURCE for module in (digits, cifar10, femnist, fashion_mnist, synthetic, folder)
}

_registered: dict[str, Source] = {}


def known_datasets() -> dict[str, Source]:
    """All data sets by name, built in and registered."""
    return BUILT_IN | _registered


def register_dataset(name: str, loader: Loader) -> None:
    """Makes `data.name = name` work in scenarios: `loader(data, seed)` returns the `Dataset`.

    `data` is the scenario's data section (`data.path` is free for the loader's use). A name can be
    registered again, which replaces it; the built-in names cannot.
    """
    if not name or name in BUILT_IN:
        raise ValueError(f"'{name}' cannot be registered; choose a name other than {', '.join(BUILT_IN)}")
    _registered[name] = Source(
        name=name, about="registered by this program", how_to_get="registered by this program", load=loader
    )


__all__ = ["BUILT_IN", "Loader", "Source", "data_root", "known_datasets", "register_dataset"]
