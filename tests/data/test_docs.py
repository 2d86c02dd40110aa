from __future__ import annotations

import re
from pathlib import Path

import pytest

from covey.data import sources

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_of_the_page_run(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "_registered", {})
    exec(compile(snippet, "data.md", "exec"), {"__name__": "snippet"})


def test_the_page_names_every_data_set() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(SNIPPETS) == 3
    assert all(f"| `{name}` |" in text for name in sources.BUILT_IN)
