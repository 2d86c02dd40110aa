"""The committed results: what was computed twice is the same, and every claim of the paper has its verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from covey.figures.tables import column, read_rows, where

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "results/figures"
STUDY = ROOT / "results/clustering/cells"


@pytest.mark.parametrize("figure", ["7", "9"])
def test_runs_that_the_clustering_study_has_too_are_the_same_to_the_last_bit(figure: str) -> None:
    data = [row for row in read_rows(FIGURES / f"figure_{figure}.csv") if row.get("part", "compared") == "compared"]
    compared = 0
    for rule in {row["rule"] for row in data}:
        for seed in {row["seed"] for row in where(data, rule=rule)}:
            study = json.loads((STUDY / f"cifar10-{rule}-{seed}.json").read_text(encoding="utf-8"))
            rows = sorted(where(data, rule=rule, seed=seed), key=lambda row: row["round"])
            assert column(rows, "clustering_accuracy").tolist() == study["clustering_accuracy"]
            compared += 1
    assert compared > 5


def test_every_figure_of_the_paper_has_its_claims() -> None:
    claims = json.loads((FIGURES / "claims.json").read_text(encoding="utf-8"))["claims"]
    assert {str(number) for number in range(2, 11)} | {"ours"} == {claim["figure"] for claim in claims}
    for claim in claims:
        assert claim["reason"], claim["claim"]
        if claim["verdict"] in ("reproduced", "direction only", "not reproduced"):
            assert claim["estimate"]["n"] >= 2
