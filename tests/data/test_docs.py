"""The page on data; tests/test_docs.py runs its commands and snippets."""

from __future__ import annotations

from pathlib import Path

from covey.parts import DATASETS, PARTITIONS

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_the_page_names_every_data_set_and_partition() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in (*DATASETS.builtin, *PARTITIONS.builtin))
