"""docs/metrics.md lists exactly what a run writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from covey.federated import REASONS
from covey.network import VIOLATION_KINDS
from covey.simulation import History, RoundRecord
from covey.simulation.record import USER_FIELDS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def _documented(heading: str) -> list[str]:
    """First cell of every row of the table below a heading, without back ticks."""
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(f"{heading}\n"))
    return re.findall(r"^\| `([^`]+)`", text, flags=re.MULTILINE)


def _keys(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict) and all(not key.isdigit() for key in value) and value:
        for key, item in value.items():
            yield from _keys(item, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from _keys(value[0], f"{name}[]")
    else:
        yield name


def test_every_column_of_rounds_csv_and_no_other(history: History) -> None:
    written = [name for name in history.records[0].row() if not re.search(r"_[1-9]\d*$", name)]
    assert _documented("rounds.csv") == written
    names = [re.sub(r"_0$", "", name) for name in _documented("rounds.csv")]
    assert names == [f.name for f in fields(RoundRecord) if f.name != "users"]


def test_every_column_of_users_csv_and_no_other() -> None:
    assert _documented("users.csv") == ["round", "user", *USER_FIELDS]


def test_every_key_of_summary_json_and_no_other(history: History) -> None:
    documented = _documented("summary.json")
    assert len(documented) == len(set(documented))
    assert set(documented) == {*_keys(history.summary()), "versions", "wall_seconds"}


def test_bits_of_the_violation_mask_are_those_of_the_code() -> None:
    row = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `violation`"))
    assert [int(bit) for bit, _ in _bits(row)] == [1 << index for index in range(len(VIOLATION_KINDS))]
    assert tuple(name for _, name in _bits(row)) == VIOLATION_KINDS


def test_bits_of_the_rejection_mask_are_those_of_the_code() -> None:
    row = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `rejection`"))
    assert [int(bit) for bit, _ in _bits(row)] == [1 << index for index in range(len(REASONS))]
    assert tuple(name for _, name in _bits(row)) == tuple(REASONS)


def _bits(row: str) -> list[tuple[str, str]]:
    return re.findall(r"(\d+) `([a-z_]+)`", row)


@pytest.mark.parametrize("page", ["concepts.md", "metrics.md", "errata.md", "dependencies.md"])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    folder = PAGE.parent
    for target in re.findall(r"\]\(([^)#:]+\.md)[^)]*\)", (folder / page).read_text(encoding="utf-8")):
        assert (folder / target).is_file(), f"{page} points to {target}"
