from __future__ import annotations

from pathlib import Path

from covey.scenario.reference import schema_reference


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "scenario.md"
    assert page.read_text(encoding="utf-8") == schema_reference(), "run `make docs-reference`"
