"""The committed results: what was computed twice is the same, and every claim of the paper has its verdict."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from covey.figures.rows import column, read_rows, where
from covey.jobs import Store, key_of

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "results/figures"
#: The committed cells of every study.
STUDIES = sorted(ROOT.glob("results/*/cells.jsonl"))


@pytest.mark.parametrize("figure", ["7", "9"])
def test_runs_that_the_clustering_study_has_too_are_the_same_to_the_last_bit(figure: str) -> None:
    data = [row for row in read_rows(FIGURES / f"figure_{figure}.csv") if row.get("part", "compared") == "compared"]
    records = Store(ROOT / "results/clustering/cells.jsonl", any_version=True).records("clustering")
    study = {(r.job["rule"], r.job["seed"]): r.values for r in records if r.job["data"] == "cifar10"}
    compared = 0
    for rule in {row["rule"] for row in data}:
        for seed in {row["seed"] for row in where(data, rule=rule)}:
            rows = sorted(where(data, rule=rule, seed=seed), key=lambda row: row["round"])
            assert column(rows, "clustering_accuracy").tolist() == study[rule, seed]["clustering_accuracy"]
            compared += 1
    assert compared > 5


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.parent.name)
def test_committed_cells_are_sorted_whole_and_say_what_computed_them(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    records = Store(path, any_version=True).records()
    assert b"".join(record.to_line() for record in records) == b"".join(lines)
    assert all({"covey", "torch", "numpy"} <= set(record.versions) for record in records)
    assert all(record.key == key_of(record.kind, record.job) for record in records)


def test_the_studies_find_their_committed_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT / "experiments")
    studies = {name: import_module(name) for name in ("association", "clustering", "identities", "private_identities")}
    wanted = [
        ("association", studies["association"].real_play("digits", "greedy", 100)),
        ("association", studies["association"].real_play("cifar10", "dpvd_alone", 102)),
        ("clustering", studies["clustering"].cell("digits", "new", "greedy", 9000)),
        ("clustering", studies["clustering"].cell("synthetic_100", "oracle", "greedy", 1002)),
        ("identities", studies["identities"].announced("swap8", 9)),
        ("private_identities", studies["private_identities"].cell("rotation", "noisy_contrasts_0.02", 1004)),
    ]
    for name, cell in wanted:
        assert Store(ROOT / "results" / name / "cells.jsonl", any_version=True).has(cell), cell.label


def test_a_committed_cell_computed_again_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "experiments")
    cell = import_module("clustering").cell("digits", "paper_start", "greedy", 1001)
    kept = Store(ROOT / "results/clustering/cells.jsonl", any_version=True)[cell]
    again = cell.compute(tmp_path)
    assert again["clustering_accuracy"] == kept["clustering_accuracy"]
    assert again["accuracy"] == pytest.approx(kept["accuracy"], abs=0.01)  # other processors add in another order


def test_the_papers_start_is_that_of_the_first_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which had no other: the study of rules was computed with it."""
    monkeypatch.syspath_prepend(ROOT / "experiments")
    records = Store(ROOT / "results/clustering/cells.jsonl", any_version=True).records("clustering")
    kept = {(r.job["data"], r.job["rule"], r.job["seed"]): r.values for r in records}
    cell = import_module("clustering").cell("digits", "paper_start", "greedy", 3)
    again = cell.compute(tmp_path)
    assert again["clustering_accuracy"] == kept["digits", "gradient_loss_0.2", 3]["clustering_accuracy"]
    assert again["accuracy"] == pytest.approx(kept["digits", "gradient_loss_0.2", 3]["accuracy"], abs=0.01)


def test_every_figure_of_the_paper_has_its_claims() -> None:
    claims = json.loads((FIGURES / "claims.json").read_text(encoding="utf-8"))["claims"]
    assert {str(number) for number in range(2, 11)} | {"ours"} == {claim["figure"] for claim in claims}
    for claim in claims:
        assert claim["reason"], claim["claim"]
        if claim["verdict"] in ("reproduced", "direction only", "not reproduced"):
            assert claim["estimate"]["n"] >= 2
