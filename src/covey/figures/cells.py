"""A cell: one piece of an experiment that is computed once, kept in a file of its own, and never again."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from covey.environment import calibration_for
from covey.scenario import Scenario, load_scenario

#: What a cell leaves behind, ready for JSON.
Values = dict[str, Any]


@cache
def scenario_of(source: str, overrides: tuple[str, ...]) -> Scenario:
    """The scenario of a preset with overrides; loaded once."""
    return load_scenario(source, overrides)


@dataclass(frozen=True)
class Cell(ABC):
    """What to compute. Two cells with the same content are the same, whatever figure asks for them.

    scenario: a preset; overrides: `key=value`, as on the command line; seed: of the run, training or layout.
    """

    scenario: str
    overrides: tuple[str, ...] = ()
    seed: int = 0

    kind: ClassVar[str]

    @property
    def loaded(self) -> Scenario:
        """The scenario itself."""
        return scenario_of(self.scenario, self.overrides)

    @property
    def needs(self) -> tuple[Cell, ...]:
        """Cells whose policy this one uses."""
        return tuple(value for value in self._own() if isinstance(value, Cell))

    @property
    def on_surrogate(self) -> bool:
        """Whether the surrogate of the scenario stands in for learning."""
        return False

    @abstractmethod
    def compute(self, folder: Path) -> Values:
        """Do the work; `folder` holds policies of other cells and takes one's own."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A few words for progress bars and file names."""

    @property
    def content(self) -> dict[str, Any]:
        """Everything that the result depends on, apart from versions; scenarios without values at their defaults, so
        that a new option changes nothing."""
        return _content(self)

    @property
    def key(self) -> str:
        """Where the result is kept, relative to the folder of all cells and without its ending."""
        return _key(self)

    def _own(self) -> list[Any]:
        return [getattr(self, name) for name in _own_fields(type(self))]


# Plans make the same cells again and again, so what is known about a cell is remembered by its fields.
@cache
def _content(cell: Cell) -> dict[str, Any]:
    scenario = cell.loaded.model_dump(mode="json", exclude_defaults=True, exclude={"name", "description"})
    own = {name: _plain(getattr(cell, name)) for name in _own_fields(type(cell))}
    surrogate = {"surrogate": _surrogate(cell.scenario, cell.overrides)} if cell.on_surrogate else {}
    return {"kind": cell.kind, "scenario": scenario, "seed": cell.seed} | own | surrogate


@cache
def _key(cell: Cell) -> str:
    digest = hashlib.sha256(json.dumps(_content(cell), sort_keys=True).encode()).hexdigest()[:12]
    return f"{cell.kind}/{cell.label.replace(' ', '-')}-{digest}"


@cache
def _surrogate(source: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    return calibration_for(scenario_of(source, overrides)).constants.to_dict()


@cache
def _own_fields(kind: type[Cell]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name not in ("scenario", "overrides", "seed"))


def _plain(value: Any) -> Any:
    return value.content if isinstance(value, Cell) else value


def policy_file(folder: Path, cell: Cell) -> Path:
    """Where the policy of a training cell is kept."""
    return folder / "policies" / f"{cell.key.replace('/', '-')}.safetensors"


def result_file(folder: Path, cell: Cell) -> Path:
    """Where the result of a cell is kept."""
    return folder / "cells" / f"{cell.key}.json"
