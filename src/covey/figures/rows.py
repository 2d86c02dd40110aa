"""Rows of the CSV files behind the figures; values round-trip exactly."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.files import csv_bytes, write_atomically

Row = dict[str, Any]
Floats = NDArray[np.float64]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write a CSV file; floats at full precision."""
    write_atomically(path, csv_bytes(list(rows)))


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file, with numbers parsed."""
    with open(path, encoding="utf-8", newline="") as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    if text == "":
        return float("nan")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def where(rows: Sequence[Row], **values: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in values.items())]


def column(rows: Sequence[Row], name: str) -> Floats:
    """(n,) one column of rows."""
    return np.array([row[name] for row in rows], dtype=np.float64)


def by_seed(rows: Sequence[Row], name: str) -> dict[int, float]:
    """One value per seed, from rows that have one row per seed."""
    return {int(row["seed"]): float(row[name]) for row in rows}


def paired(first: dict[int, float], second: dict[int, float]) -> tuple[Floats, Floats]:
    """Values of the common seeds, in order of seed."""
    seeds = sorted(first.keys() & second.keys())
    return np.array([first[s] for s in seeds]), np.array([second[s] for s in seeds])


def grid(rows: Sequence[Row], x: str, y: str) -> tuple[Floats, Floats]:
    """x (m,) and y (seeds, m) of rows with one row per seed and x; seeds that lack an x are left out."""
    xs = sorted({float(row[x]) for row in rows})
    table: dict[int, dict[float, float]] = {}
    for row in rows:
        table.setdefault(int(row["seed"]), {})[float(row[x])] = float(row[y])
    complete = [line for _, line in sorted(table.items()) if len(line) == len(xs)]
    return np.array(xs), np.array([[line[value] for value in xs] for line in complete]).reshape(len(complete), len(xs))
