"""Comparison of runs and trainings: curves, and the settings in which they differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from covey.dashboard.catalogue import Catalogue
from covey.dashboard.entries import Entry, Number, read_json, read_toml
from covey.dashboard.run_tables import Tables
from covey.dashboard.scenario_keys import POINTS


class Curve(BaseModel):
    """One column of one entry over its rounds or epochs; missing and infinite values are null."""

    id: str
    x: list[int]
    y: list[float | None]


class Column(BaseModel):
    """A column and how many of the compared entries have it."""

    name: str
    entries: int


class Curves(BaseModel):
    """Curves of the requested columns, and all available columns."""

    columns: list[Column]
    curves: dict[str, list[Curve]]


class Difference(BaseModel):
    """A key in which entries differ, with the value of each; null if not set."""

    key: str
    values: list[Number | bool]


class Differences(BaseModel):
    """Keys in which entries differ, and the number of keys they share."""

    entries: list[str]
    different: list[Difference]
    equal: int = Field(description="Keys that have the same value everywhere.")


def curves_of(catalogue: Catalogue, tables: Tables, names: list[str], columns: list[str]) -> Curves:
    """Curves of these columns of these entries."""
    found = [(name, tables.table(catalogue.folder.place(name))) for name in names]
    count: dict[str, int] = {}
    for _, table in found:
        for column in table.rows[-1] if table.rows else ():
            if column != table.index:
                count[column] = count.get(column, 0) + 1
    curves: dict[str, list[Curve]] = {}
    for column in columns:
        curves[column] = [
            _curve(name, table.rows, table.index, column)
            for name, table in found
            if table.rows and column in table.rows[-1]
        ]
    return Curves(columns=[Column(name=name, entries=entries) for name, entries in count.items()], curves=curves)


def _curve(name: str, rows: list[dict[str, Any]], index: str, column: str) -> Curve:
    step = -(-len(rows) // POINTS) or 1
    kept = rows[::step] if (len(rows) - 1) % step == 0 else [*rows[::step], rows[-1]]
    numbers = [(_whole(row.get(index), place), row.get(column)) for place, row in enumerate(kept, start=1)]
    return Curve(
        id=name,
        x=[x for x, _ in numbers],
        y=[float(y) if isinstance(y, (int, float)) and not isinstance(y, bool) else None for _, y in numbers],
    )


def _whole(value: Any, fallback: int) -> int:
    return value if isinstance(value, int) else fallback


def differences_of(catalogue: Catalogue, names: list[str]) -> Differences:
    """Keys of scenario and learner, policy, seed and rounds in which these entries differ."""
    settings = [_settings(catalogue.entry(name), catalogue.folder.place(name)) for name in names]
    keys = dict.fromkeys(key for one in settings for key in one)
    different = []
    for key in keys:
        values = [one.get(key) for one in settings]
        if any(value != values[0] for value in values):
            different.append(Difference(key=key, values=[_shown(value) for value in values]))
    return Differences(entries=names, different=different, equal=len(keys) - len(different))


def _settings(entry: Entry, path: Path) -> dict[str, Any]:
    about = {"kind": entry.kind, "policy": entry.policy, "seed": entry.seed, "total": entry.total}
    learner = read_json(path / "learner.json")
    return about | _flat(read_toml(path / "scenario.toml")) | _flat({"learner": learner} if learner else {})


def _flat(table: dict[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{before}{key}.")
        else:
            flat[f"{before}{key}"] = value
    return flat


def _shown(value: Any) -> Number | bool:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value if not isinstance(value, str) else value[:500]
    text = json.dumps(value, default=str)
    return text if len(text) <= 500 else f"{text[:497]}..."
