"""What makes the answer of a part wrong, as the end of a sentence; shared by all checks of parts of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from covey.errors import CoveyError
from covey.faults import Named
from covey.parts import Registry
from covey.simulation.world import World


def check_memory(world: World, registry: Registry, part: Any, memory: Any, called: str = "") -> None:
    """Whatever is remembered is saved with the run, as arrays of numbers by name."""
    if not isinstance(memory, Mapping):
        where = f" in `{called}`" if called else ""
        raise refused(world, registry, part, f"gave {kind_of(memory)} as memory{where}; give arrays by name, or {{}}")
    for name, values in memory.items():
        if not (isinstance(name, str) and isinstance(values, np.ndarray) and values.dtype.kind in "biuf"):
            what = f"an array of {values.dtype}" if isinstance(values, np.ndarray) else kind_of(values)
            why = f"remembers {what} as '{name}', which cannot be saved with the run; remember arrays of numbers"
            raise refused(world, registry, part, why)


def refused(world: World, registry: Registry, part: Any, why: str) -> CoveyError:
    """The error that names the part and says why."""
    return registry.refused(Named.of(registry, part, world.scenario).name, why)


def not_users(values: Any, users: int) -> str:
    """Why this is no array of numbers of users, as the end of a sentence."""
    if not (isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.ndim == 1):
        return "are no array (n,) of whole numbers"
    if len(values) and not (values.min() >= 0 and values.max() < users):
        return f"go from {values.min()} to {values.max()}; users are 0 to {users - 1}"
    return "" if len(np.unique(values)) == len(values) else "name a user twice"


def not_models(world: World, values: Any) -> str:
    """Why these are no models (K, D), as the end of a sentence."""
    why = not_numbers(values, (world.tasks, world.weights), np.float32)
    return why or ("" if np.isfinite(values).all() else "hold NaN or infinity")


def not_numbers(values: Any, shape: tuple[int | None, ...], kind: type[np.generic] | None = None) -> str:
    """Why this is no array of numbers of this shape (None for any length) and type, as the end of a sentence."""
    if not isinstance(values, np.ndarray):
        return f"are {kind_of(values)}, not an array"
    if values.ndim != len(shape) or any(
        want not in (None, have) for want, have in zip(shape, values.shape, strict=True)
    ):
        wanted = ", ".join("m" if want is None else str(want) for want in shape)
        return f"have shape {values.shape}; they must be ({wanted}{',' if len(shape) == 1 else ''})"
    if values.dtype.kind not in "biuf" or (kind is not None and values.dtype != kind):
        return f"have type {values.dtype}; they must be {np.dtype(kind or np.float64)}"
    return ""


def kind_of(value: Any) -> str:
    """What kind of object this is, in words."""
    return "None" if value is None else f"an object of type {type(value).__name__}"
