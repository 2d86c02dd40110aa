"""The example scripts run as they are, in the order of their cells, and write the pictures they speak of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.forks import Forks
from tests.pages import ROOT, Block, make_checkout, run_block

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(script: Path, forks: Forks, tmp_path: Path) -> None:
    make_checkout(tmp_path, forks)
    command = f".venv/bin/python examples/{script.name}"
    result = run_block(Block(script.name, 1, "sh", command, None), tmp_path, forks)
    assert result.returncode == 0, result.stderr
    picture = tmp_path / "runs" / "examples" / f"{script.stem}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"wrote runs/examples/{script.stem}.png" in result.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_sequence_of_cells(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    cells = re.split(r"^# %%", text, flags=re.MULTILINE)
    assert cells[0] == "", "it begins with a cell"
    words = [cell for cell in cells[1:] if cell.startswith(" [markdown]\n")]
    assert len(words) >= 4
    assert words[0].splitlines()[1].startswith("# # "), "the first cell is the title"
    for cell in words:
        assert all(line.startswith("#") for line in cell.splitlines()[1:] if line), "only comments in a cell of words"
    assert len(cells) - 1 - len(words) >= 4


def test_the_page_shows_every_example() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) == 3
    for script in EXAMPLES:
        assert f"python examples/{script.name}" in page
        assert f"](../examples/{script.name})" in page
        assert f"](images/example-{script.stem.replace('_', '-')}.png)" in page
