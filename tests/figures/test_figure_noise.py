"""Clustering rules under noise: rows, claims and picture from known numbers."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

from covey.figures.kinds import RealRun
from covey.figures.plans import Work, figure_noise
from covey.figures.rows import read_rows, write_rows
from covey.figures.scales import SCALES
from covey.figures.shown import figure_noise as shown

#: Clustering accuracy of seed 0 by rule and factor; every further seed has a little more.
FINAL = {
    "loss": {0.0: 0.5, 1.0: 0.5, 16.0: 0.5},
    "gradient_loss_0.2": {0.0: 0.7, 1.0: 0.6, 16.0: 0.55},
    "gradient_loss_0.5": {0.0: 0.8, 1.0: 0.7, 16.0: 0.45},
    "printed_sign_0.2": {0.0: 0.4, 1.0: 0.4, 16.0: 0.4},
    "kmeans": {0.0: 0.9, 1.0: 0.6, 16.0: 0.2},
}


def _rows(seeds: int, rules: tuple[str, ...] = shown.SHOWN) -> list[dict[str, Any]]:
    return [
        {
            "rule": rule, "factor": factor, "seed": seed, "rounds": 15,
            "clustering_accuracy": value + 0.01 * seed + (0.001 * seed if rule == "gradient_loss_0.2" else 0.0),
            "adjusted_rand_index": 0.5, "accuracy": 0.7,
        }
        for rule in rules
        for factor, value in FINAL[rule].items()
        for seed in range(seeds)
    ]  # fmt: skip


class FakeStore:
    """All runs of seed 0 are finished."""

    def has(self, cell: RealRun) -> bool:
        return cell.seed == 0

    def __getitem__(self, cell: RealRun) -> dict[str, Any]:
        final = 0.25 if cell.loaded.clustering.rule == "kmeans" else 0.75
        return {"columns": {name: [0.0, final] for name in ("clustering_accuracy", "adjusted_rand_index", "accuracy")}}


def test_rows_are_the_last_rounds_of_finished_cells() -> None:
    work = Work(SCALES["quick"], 2, FakeStore())  # type: ignore[arg-type]
    found = shown.rows(work)
    assert len(found) == len(figure_noise(work)) / 2
    assert {row["seed"] for row in found} == {0}
    assert {row["clustering_accuracy"] for row in found if row["rule"] == "kmeans"} == {0.25}
    assert {row["clustering_accuracy"] for row in found if row["rule"] != "kmeans"} == {0.75}
    assert {row["rounds"] for row in found} == {2}


def test_claims_are_judged_by_paired_differences() -> None:
    over_loss, over_half, over_half_at_most, over_kmeans = shown.claims(_rows(3), "digits")
    assert over_loss.estimate is not None
    assert over_loss.estimate.value == pytest.approx(10.1)
    assert over_loss.verdict == "reproduced"
    assert over_half.estimate is not None
    assert over_half.estimate.value == pytest.approx(-9.9)
    assert over_half.verdict == "not reproduced"
    assert over_half_at_most.estimate is not None
    assert over_half_at_most.estimate.value == pytest.approx(10.1)
    assert over_half_at_most.verdict == "reproduced"
    assert over_kmeans.estimate is not None
    assert over_kmeans.estimate.value == pytest.approx(0.1)
    assert over_kmeans.verdict == "not reproduced"


def test_reasons_name_every_factor_and_the_best_rules() -> None:
    over_loss, over_half, over_half_at_most, _ = shown.claims(_rows(3), "digits")
    assert "no noise: -9.9 ± 0.2 points, n = 3; 1: -9.9 ± 0.2 points, n = 3; 16: +10.1" in over_half.reason
    assert "Highest mean: no noise: central k-means; 1: gradient and loss, weight 0.5; 16: gradient" in over_loss.reason
    assert "0 of 3 runs" in over_half_at_most.reason
    assert "16 times" in over_half_at_most.claim


def test_equal_means_are_all_named_best() -> None:
    rows = [row | {"clustering_accuracy": 0.75} for row in _rows(2)]
    over_loss = shown.claims(rows, "digits")[0]
    assert "no noise: loss only (weight 0) and gradient and loss, weight 0.2 and" in over_loss.reason


def test_one_seed_is_not_testable() -> None:
    for claim in shown.claims(_rows(1), "digits"):
        assert claim.verdict == "not testable"
        assert claim.estimate is not None


def test_missing_rules_leave_no_estimate(tmp_path) -> None:
    rows = _rows(3, ("gradient_loss_0.2", "kmeans"))
    found = shown.claims(rows, "digits")
    assert [claim.estimate is None for claim in found] == [True, True, True, False]
    assert {claim.verdict for claim in found[:3]} == {"not testable"}
    assert all(claim.estimate is None for claim in shown.claims([], "digits"))
    shown.draw(rows, "digits").savefig(tmp_path / "picture.png")
    shown.draw([], "digits").savefig(tmp_path / "picture.png")


def test_picture_has_every_rule_and_factor(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    write_rows(path, _rows(3))
    figure = shown.draw(read_rows(path), "digits (scenario quick)")
    assert isinstance(figure, Figure)
    every, versus = figure.axes
    assert [label.get_text() for label in every.get_xticklabels()] == ["no noise", "1", "16"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "central k-means (n = 3)" in legend
    assert "highest mean" in legend
    assert len(legend) == 6
    assert "points" in versus.get_ylabel()
    assert any(text.get_text() == "digits (scenario quick)" for text in figure.texts)
