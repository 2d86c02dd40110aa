"""Comparison of result files; every function returns a list of differences as text, empty if equal.

A difference names the first mismatch and, for numbers, the largest difference. NaN equals NaN when the bits
are equal, and 0.0 differs from -0.0.
"""

from __future__ import annotations

import csv
import fnmatch
import io
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

#: Keys of JSON files that hold times, versions or paths, which differ between equal runs.
UNSTABLE = frozenset({
    "versions", "version", "wall_seconds", "seconds", "security_milliseconds", "decision_ms", "created", "folder",
})  # fmt: skip
#: Columns of CSV files that hold times.
TIME_COLUMN = re.compile(r"(^|_)(seconds|ms|time)$")


def compare_files(old: Path, new: Path) -> list[str]:
    """Differences between two files of the same name, by the rule for that name (`RULES`), by default bytewise."""
    absent = [str(side) for side, path in (("old", old), ("new", new)) if not path.is_file()]
    if absent:
        return [f"missing in {' and '.join(absent)}"]
    for pattern, rule in RULES:
        if fnmatch.fnmatch(old.name, pattern):
            return rule(old, new)
    return compare_bytes(old, new)


def compare_bytes(old: Path, new: Path) -> list[str]:
    """Bytewise comparison; differences are described by file type."""
    first, second = old.read_bytes(), new.read_bytes()
    if first == second:
        return []
    if old.suffix == ".csv":
        return compare_tables(old, new) or ["same values, other bytes"]
    if old.suffix == ".safetensors":
        return compare_tensors(old, new) or ["same tensors, other header"]
    return compare_lines(first, second)


def compare_lines(old: bytes, new: bytes) -> list[str]:
    """First line that differs, and the largest numeric difference in lines that otherwise agree."""
    left, right = old.split(b"\n"), new.split(b"\n")
    for number, (a, b) in enumerate(zip(left, right, strict=False), start=1):
        if a != b:
            return [f"line {number}: {_short(a)} -> {_short(b)}{_largest_in(left, right)}"]
    return [] if old == new else [f"{len(left) - 1} lines -> {len(right) - 1}"]


def compare_tables(old: Path, new: Path, without: re.Pattern[str] | None = None) -> list[str]:
    """Cells of two CSV files with a header, as text; columns whose name matches `without` are skipped."""
    tables = [list(csv.reader(io.StringIO(path.read_text(encoding="utf-8")))) for path in (old, new)]
    heads = [table[0] if table else [] for table in tables]
    columns = [[name for name in head if without is None or not without.search(name)] for head in heads]
    found = []
    if gone := [name for name in columns[0] if name not in columns[1]]:
        found.append(f"columns gone: {', '.join(gone)}")
    if added := [name for name in columns[1] if name not in columns[0]]:
        found.append(f"columns added: {', '.join(added)}")
    if not found and columns[0] != columns[1]:
        found.append("columns in another order")
    if len(tables[0]) != len(tables[1]):
        found.append(f"{len(tables[0]) - 1} rows -> {len(tables[1]) - 1}")
    places = {name: (heads[0].index(name), heads[1].index(name)) for name in columns[0] if name in columns[1]}
    first, largest = "", 0.0
    for number, (a, b) in enumerate(zip(tables[0][1:], tables[1][1:], strict=False), start=2):
        for name, (left, right) in places.items():
            if a[left] != b[right]:
                first = first or f"line {number}, {name}: {a[left]} -> {b[right]}"
                largest = max(largest, _distance(a[left], b[right]))
    if first:
        found.append(f"{first} (largest difference {largest:.3g})")
    return found


def compare_tensors(old: Path, new: Path, *, common: bool = False) -> list[str]:
    """Names, shapes, types and bits of the tensors of two safetensors files; `common`: only of tensors in both."""
    found = []
    with safe_open(old, framework="numpy") as left, safe_open(new, framework="numpy") as right:
        names = [set(file.keys()) for file in (left, right)]
        if not common and names[0] != names[1]:
            found.append(f"tensors in one file only: {', '.join(sorted(names[0] ^ names[1])[:5])}")
        for name in sorted(names[0] & names[1]):
            found += compare_arrays(name, left.get_tensor(name), right.get_tensor(name))
    return found


def compare_arrays(name: str, old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> list[str]:
    """Shape, type and bits of two arrays."""
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        return [f"tensor {name}: {old.dtype}{list(old.shape)} -> {new.dtype}{list(new.shape)}"]
    if old.tobytes() == new.tobytes():
        return []
    pairs = [np.ascontiguousarray(array).reshape(old.size, 1).view(np.uint8) for array in (old, new)]
    changed = np.flatnonzero((pairs[0] != pairs[1]).any(axis=1))
    place = [int(index) for index in np.unravel_index(changed[0], old.shape)]
    with np.errstate(all="ignore"):
        distance = np.abs(old.astype(np.float64) - new.astype(np.float64))
    largest = np.nan if np.isnan(distance[~np.isnan(old.astype(np.float64))]).any() else np.nanmax(distance)
    return [
        f"tensor {name}: {len(changed)} of {old.size} values, first at {place}:"
        f" {old.reshape(-1)[changed[0]]} -> {new.reshape(-1)[changed[0]]} (largest difference {largest:.3g})"
    ]


def compare_json(old: Path, new: Path) -> list[str]:
    """The new file contains everything in the old one, except times and versions; new keys are allowed."""
    return compare_values(*(json.loads(path.read_text(encoding="utf-8")) for path in (old, new)))


def compare_values(old: Any, new: Any, *, gone_allowed: bool = False, ignored: Collection[str] = UNSTABLE) -> list[str]:
    """Differences between two trees of dicts, lists and scalars; numbers are equal if their `repr` is."""
    found = list(_differing(old, new, "", gone_allowed, ignored))
    if len(found) > 1:
        found[1:] = [f"and {len(found) - 1} more values"]
    return found


def _differing(old: Any, new: Any, where: str, gone_allowed: bool, ignored: Collection[str]) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key in ignored:
                continue
            if key in new:
                yield from _differing(value, new[key], f"{where}.{key}" if where else key, gone_allowed, ignored)
            elif not gone_allowed:
                yield f"{where}.{key} is gone" if where else f"{key} is gone"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from _differing(left, right, f"{where}[{index}]", gone_allowed, ignored)
    elif type(old) is not type(new) or repr(old) != repr(new):
        yield f"{where}: {_short(repr(old))} -> {_short(repr(new))}"


def compare_scenarios(old: Path, new: Path) -> list[str]:
    """Values of the common keys of two scenario files."""
    return compare_values(*(tomllib.loads(path.read_text(encoding="utf-8")) for path in (old, new)), gone_allowed=True)


def compare_checkpoints(old: Path, new: Path) -> list[str]:
    """State, ledger and records of two checkpoints, as far as both contain them."""
    headers = []
    for path in (old, new):
        with safe_open(path, framework="numpy") as file:
            headers.append(json.loads((file.metadata() or {}).get("covey", "{}")))
    keys = ("seed", "policy", "rounds", "round", "ledger", "records")
    found = []
    for key in keys:
        if any(key not in header for header in headers):
            found += [f"header has no {key}"]
        else:
            found += [f"header {key} {text}" for text in compare_values(headers[0][key], headers[1][key])]
    return found + compare_tensors(old, new, common=True)


def compare_metrics(old: Path, new: Path) -> list[str]:
    """A training's rows without times."""
    return compare_tables(old, new, TIME_COLUMN)


#: The rule by file name; bytewise for all others (rounds.csv, users.csv, models.safetensors, ledger.jsonl, ...).
RULES: Sequence[tuple[str, Callable[[Path, Path], list[str]]]] = (
    ("checkpoint.safetensors", compare_checkpoints),
    ("policy.safetensors", compare_tensors),
    ("metrics.csv", compare_metrics),
    ("scenario.toml", compare_scenarios),
    ("*.json", compare_json),
)


def _distance(old: str, new: str) -> float:
    try:
        return abs(float(old) - float(new))
    except ValueError:
        return float("nan")


_NUMBER = re.compile(rb"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")


def _largest_in(old: Sequence[bytes], new: Sequence[bytes]) -> str:
    """The largest difference between corresponding numbers of otherwise equal lines."""
    if len(old) != len(new) or any(_NUMBER.sub(b"", a) != _NUMBER.sub(b"", b) for a, b in zip(old, new, strict=True)):
        return ""
    pairs = [
        (float(x), float(y))
        for a, b in zip(old, new, strict=True)
        if a != b
        for x, y in zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    ]
    return f" (largest difference {max(abs(x - y) for x, y in pairs):.3g})" if pairs else ""


def _short(text: bytes | str, width: int = 80) -> str:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return shown if len(shown) <= width else shown[: width - 3] + "..."
