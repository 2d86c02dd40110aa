"""Claims and pages come from the CSV files alone, and disagreement is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from covey.figures.compute import finish
from covey.figures.page import results_page
from covey.figures.plans import plan_of
from covey.figures.publish import claims_of, publish, setting_of, work_in
from covey.figures.rows import column, grid, paired, read_rows, write_rows
from covey.figures.scales import SCALES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figures 2 and 6 at their smallest."""
    out = tmp_path_factory.mktemp("figures")
    work = work_in(out, "quick", 2)
    finish(plan_of(["2", "6"], work.scale, work.seeds), work.store, 1)
    publish(["2", "6"], work, seconds=1.0, command="covey figures 2 6")
    return out


def test_numbers_survive_a_csv_file(tmp_path: Path) -> None:
    rows = [{"name": "a", "seed": 0, "x": 0.1 + 0.2}, {"name": "b", "seed": 1, "x": float("nan")}]
    write_rows(tmp_path / "rows.csv", rows)
    back = read_rows(tmp_path / "rows.csv")
    assert back[0] == rows[0]
    assert back[1]["x"] != back[1]["x"]
    assert column(back, "seed").tolist() == [0.0, 1.0]


def test_a_grid_leaves_out_seeds_that_lack_a_point() -> None:
    rows = [{"seed": s, "x": x, "y": 10 * s + x} for s in (0, 1, 2) for x in (1, 2) if (s, x) != (1, 2)]
    xs, ys = grid(rows, "x", "y")
    assert xs.tolist() == [1.0, 2.0]
    assert ys.tolist() == [[1.0, 2.0], [21.0, 22.0]]
    assert grid([], "x", "y")[1].shape == (0, 0)
    first, second = paired({0: 1.0, 2: 3.0}, {2: 5.0, 1: 4.0})
    assert (first.tolist(), second.tolist()) == ([3.0], [5.0])


def test_claims_follow_from_the_csv_files(folder: Path) -> None:
    stored = json.loads((folder / "claims.json").read_text(encoding="utf-8"))["claims"]
    assert stored == [claim.to_dict() for claim in claims_of(folder, SCALES["quick"])]
    assert all(
        claim["setting"] == setting_of("6", SCALES["quick"]) == "digits (scenario paper_digits)" for claim in stored
    )


def test_the_page_shows_every_claim_and_every_figure(folder: Path) -> None:
    page = results_page(folder)
    for claim in json.loads((folder / "claims.json").read_text(encoding="utf-8"))["claims"]:
        assert claim["claim"] in page
        assert f"**{claim['verdict']}**" in page
    assert page.count("![") == 2
    assert "covey figures 2 6" in page


def test_a_page_is_refused_where_claims_and_data_disagree(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / "figure_6.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "figure_6.csv").write_text("\n".join(text[: len(text) // 2]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="not what the CSV files"):
        results_page(tmp_path)
