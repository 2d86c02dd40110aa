"""Rows of runs and trainings: every round or epoch so far, finished or still running."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.agents.training_files import CHECKPOINT as TRAINING_CHECKPOINT
from covey.agents.training_files import METRICS
from covey.dashboard.entries import number
from covey.errors import CoveyError
from covey.simulation.checkpoint import CHECKPOINT, read_checkpoint_header
from covey.simulation.progress import PROGRESS

#: Size of the cache, in tables.
_KEPT = 64

Row = dict[str, Any]


@dataclass
class Table:
    """Rows of an entry in order, append-only within a `version`; discarding rows increments it."""

    rows: list[Row] = field(default_factory=list)
    version: int = 0
    mark: tuple[Any, ...] = ()
    offset: int = 0
    whole: bool = True

    @property
    def index(self) -> str:
        """The index column: `round` or `epoch`."""
        return "epoch" if self.rows and "epoch" in self.rows[0] else "round"


class Tables:
    """LRU cache of tables, read incrementally; thread-safe."""

    def __init__(self) -> None:
        self._tables: OrderedDict[Path, Table] = OrderedDict()
        self._lock = threading.Lock()

    def table(self, path: Path) -> Table:
        """The table of the entry in a folder. Do not modify the rows."""
        with self._lock:
            table = self._tables.pop(path, None) or Table()
            self._tables[path] = table
            while len(self._tables) > _KEPT:
                self._tables.popitem(last=False)
            _update(table, path)
            # A copy of the list: the next call may append or discard rows.
            return Table(list(table.rows), table.version, table.mark, table.offset, table.whole)


def _update(table: Table, path: Path) -> None:
    progress = path / PROGRESS
    try:
        found = os.lstat(progress)
        mark: tuple[Any, ...] = (found.st_dev, found.st_ino)
    except OSError:
        found, mark = None, ()
    if found is not None and table.whole:
        if table.mark != mark or found.st_size < table.offset:
            _forget(table, mark)
        if found.st_size > table.offset:
            _append(table, progress)
        if table.whole:
            return
    # No complete progress file: fall back to the checkpoint or CSV.
    mark = _times(path)
    if table.mark != mark:
        _forget(table, mark)
        table.rows = _stored(path)
        table.whole = False


def _forget(table: Table, mark: tuple[Any, ...]) -> None:
    table.rows, table.version, table.mark, table.offset, table.whole = [], table.version + 1, mark, 0, True


def _append(table: Table, progress: Path) -> None:
    with open(progress, "rb") as file:
        file.seek(table.offset)
        content = file.read()
    complete = content[: content.rfind(b"\n") + 1]
    table.offset += len(complete)
    for line in complete.splitlines():
        try:
            event = json.loads(line)
            kind, done = event["event"], int(event["done"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # a line truncated by a crash
        if kind == "row" and isinstance(event.get("row"), dict):
            _put(table, done, event["row"])
        elif kind == "started":
            _begin(table, done, event)


def _begin(table: Table, done: int, event: Row) -> None:
    """A job starts or resumes after `done` rows: discard later rows; if earlier ones are missing, use stored rows."""
    if done > len(table.rows):
        table.whole = False
    elif done < len(table.rows):
        del table.rows[done:]
        table.version += 1


def _put(table: Table, done: int, row: Row) -> None:
    if done == len(table.rows) + 1:
        table.rows.append(row)
    else:
        table.whole = False


def _times(path: Path) -> tuple[Any, ...]:
    """Modification times and sizes of the files with rows, as a cache key."""
    times = []
    for name in (CHECKPOINT, TRAINING_CHECKPOINT, "rounds.csv", METRICS):
        try:
            found = os.lstat(path / name)
        except OSError:
            continue
        times.append((name, found.st_mtime_ns, found.st_size))
    return tuple(times)


def _stored(path: Path) -> list[Row]:
    """Rows from a checkpoint, otherwise from a CSV file; empty if there is neither."""
    for checkpoint, key in ((TRAINING_CHECKPOINT, "rows"), (CHECKPOINT, "records")):
        if (path / checkpoint).is_file():
            try:
                return [_flat(record) for record in read_checkpoint_header(path, checkpoint)[key]]
            except (CoveyError, KeyError, TypeError, AttributeError):
                continue
    for name in (METRICS, "rounds.csv"):
        try:
            text = (path / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        return [{key: _value(cell) for key, cell in row.items() if key} for row in csv.DictReader(io.StringIO(text))]
    return []


def _flat(record: Row) -> Row:
    """One flat row; lists become `name_0`, `name_1`, ..., as in rounds.csv."""
    flat: Row = {}
    for name, value in record.items():
        values = {f"{name}_{i}": item for i, item in enumerate(value)} if isinstance(value, list) else {name: value}
        flat.update({key: number(item) for key, item in values.items()})
    return flat


def _value(cell: Any) -> Any:
    if not isinstance(cell, str) or cell == "":
        return None
    try:
        value = float(cell)
    except ValueError:
        return cell[:100]
    return number(int(value) if math.isfinite(value) and value.is_integer() and abs(value) < 2**53 else value)
