"""The table of docs/howto-personal.md is that of the study's cells."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from covey.figures.cells import cells_in

ROOT = Path(__file__).parents[1]


def test_the_table_of_the_page_follows_from_the_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    import personal

    # By label: keys of cells change with every new key of scenarios, and results do not.
    store = cells_in(ROOT / "results" / "personal", any_version=True)
    runs, seeds = {record.label: record.values for record in store.records()}, range(1000, 1020)
    found = {
        (data, mode): [runs[personal.cell(data, mode, seed).label] for seed in seeds]
        for data in personal.DATA
        for mode in personal.MODES
    }
    table = personal.table(found)
    assert table in (ROOT / "docs" / "howto-personal.md").read_text(encoding="utf-8")
    assert (ROOT / "results" / "personal" / "table.md").read_text(encoding="utf-8") == table + "\n"
    sys.modules.pop("personal")
