"""A cell: one job of an experiment, whose result is cached in a store."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from covey.environment import calibration_for
from covey.jobs import Store, Values, digest, key_of, scenario_digest
from covey.scenario import Scenario, load_scenario

#: The store of a folder of figures.
CELLS = "cells.jsonl"


@cache
def scenario_of(source: str, overrides: tuple[str, ...]) -> Scenario:
    """The scenario of a preset with overrides; loaded once."""
    return load_scenario(source, overrides)


@dataclass(frozen=True)
class Cell(ABC):
    """A job to compute. Cells with equal content are the same job, whichever figures use them.

    scenario: a preset; overrides: `key=value`, as on the command line; seed: of the run, training or layout. `pinned`:
    overrides of all cells of a kind, which come before their own.
    """

    scenario: str
    overrides: tuple[str, ...] = ()
    seed: int = 0

    kind: ClassVar[str]
    pinned: ClassVar[tuple[str, ...]] = ()

    @property
    def loaded(self) -> Scenario:
        """The scenario itself."""
        return scenario_of(self.scenario, (*self.pinned, *self.overrides))

    @property
    def needs(self) -> tuple[Cell, ...]:
        """Cells whose policy this one uses."""
        return tuple(value for value in self._own() if isinstance(value, Cell))

    @property
    def on_surrogate(self) -> bool:
        """Whether learning is replaced by the surrogate of the scenario."""
        return False

    @abstractmethod
    def compute(self, folder: Path) -> Values:
        """Compute the result; policies are read from and written to `folder`."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Short label for progress bars and file names."""

    @property
    def content(self) -> dict[str, Any]:
        """Everything the result depends on, apart from versions."""
        return _content(self)

    @property
    def key(self) -> str:
        """The key of the result in a store."""
        return _key(self)

    def _own(self) -> list[Any]:
        return [getattr(self, name) for name in _own_fields(type(self))]


# Plans create the same cells many times, so derived values are memoised by the fields of a cell.
@cache
def _content(cell: Cell) -> dict[str, Any]:
    own = {name: _plain(getattr(cell, name)) for name in _own_fields(type(cell))}
    surrogate = {"surrogate": _surrogate(cell.scenario, (*cell.pinned, *cell.overrides))} if cell.on_surrogate else {}
    return {"scenario": _scenario(cell.scenario, (*cell.pinned, *cell.overrides)), "seed": cell.seed} | own | surrogate


@cache
def _key(cell: Cell) -> str:
    return key_of(cell.kind, _content(cell))


@cache
def _scenario(source: str, overrides: tuple[str, ...]) -> str:
    return scenario_digest(scenario_of(source, overrides))


@cache
def _surrogate(source: str, overrides: tuple[str, ...]) -> str:
    return digest(calibration_for(scenario_of(source, overrides)).constants.to_dict())


@cache
def _own_fields(kind: type[Cell]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name not in ("scenario", "overrides", "seed"))


def _plain(value: Any) -> Any:
    return value.content if isinstance(value, Cell) else value


def policy_name(cell: Cell) -> str:
    """Path of the policy of a training cell, relative to the folder of its store."""
    words = re.sub(r"[^\w.-]+", "-", cell.label)
    return f"policies/{cell.kind}-{words}-{cell.key}.safetensors"


def policy_file(folder: Path, cell: Cell) -> Path:
    """Path of the policy of a training cell in a folder."""
    return folder / policy_name(cell)


def cells_in(folder: Path, *, any_version: bool = False) -> Store:
    """The store of the cells in a folder."""
    return Store(folder / CELLS, any_version=any_version)
