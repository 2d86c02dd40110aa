"""Comments in the code that point to docs/errata.md point to an entry."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_entry_that_the_code_names_is_on_the_page() -> None:
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    entries = set(re.findall(r"^\*\*(E\d+), (?:wrong|open|slip)", page, flags=re.MULTILINE))
    named: dict[str, str] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for mention in re.findall(r"errata ((?:E\d+(?:, | and | to )?)+)", path.read_text(encoding="utf-8")):
            named |= dict.fromkeys(re.findall(r"E\d+", mention), path.name)
    assert len(named) > 10
    assert set(named) <= entries, {entry: named[entry] for entry in set(named) - entries}
