"""Privacy against accuracy: rows, claims and picture from known numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from matplotlib.figure import Figure

from covey.figures.kinds import RealRun
from covey.figures.plans import Work
from covey.figures.rows import read_rows, write_rows
from covey.figures.scales import SCALES
from covey.figures.shown import figure_privacy as shown

EPSILON = {0.0: math.nan, 1.0: 10.0, 16.0: 2.5}


def _rows(seeds: int, cost: float = 0.01, gap: float = 0.1, rules: tuple[str, ...] = tuple(shown.SHOWN)) -> Any:
    """Noise of factor 1 costs `cost`, true groups are worth `gap`; pairs differ a little from seed to seed."""
    level = {"gradient_loss_0.2": 0.7, "oracle": 0.7 + gap}
    lost = {0.0: 0.0, 1.0: cost, 16.0: 0.2}
    return [
        {
            "rule": rule, "factor": factor, "seed": seed, "rounds": 15, "delta": 1e-5, "epsilon": EPSILON[factor],
            "accuracy": level[rule] - lost[factor] + 0.002 * seed * (1 if factor else 2) * (1 + (rule == "oracle")),
            "clustering_accuracy": 1.0 if rule == "oracle" else 0.75, "served": 8.5,
        }
        for rule in rules
        for factor in EPSILON
        for seed in range(seeds)
    ]  # fmt: skip


class FakeStore:
    """All runs are finished but those of the true groups with seed 1."""

    def has(self, cell: RealRun) -> bool:
        return not (cell.seed == 1 and cell.loaded.clustering.rule == "oracle")

    def __getitem__(self, cell: RealRun) -> dict[str, Any]:
        off = cell.loaded.privacy.noise == "off"
        columns = {"accuracy": [0.1, 0.8], "clustering_accuracy": [0.5, 1.0], "served": [7.0, 8.0]}
        return {"columns": columns | {"epsilon_max": [None, None] if off else [1.0, 3.0]}}


def test_rows_have_the_last_epsilon_and_none_without_noise(tmp_path) -> None:
    found = shown.rows(Work(SCALES["quick"], 2, FakeStore()))  # type: ignore[arg-type]
    assert len(found) == len(SCALES["quick"].noise_factors) * 3
    assert {row["epsilon"] for row in found if row["factor"] > 0} == {3.0}
    assert all(math.isnan(row["epsilon"]) for row in found if row["factor"] == 0)
    assert {(row["accuracy"], row["served"], row["delta"]) for row in found} == {(0.8, 7.5, 1e-5)}
    path = tmp_path / "rows.csv"
    write_rows(path, found)
    again = read_rows(path)
    assert all(math.isnan(row["epsilon"]) for row in again if row["factor"] == 0)
    assert shown.claims(again, "digits")[0].estimate is not None


@pytest.mark.parametrize(
    ("cost", "verdict"),
    [(0.01, "reproduced"), (0.05, "not testable"), (0.2, "not reproduced"), (-0.2, "not reproduced")],
)
def test_cost_of_noise_is_paired_and_in_points(cost: float, verdict: str) -> None:
    found, given, _ = shown.claims(_rows(3, cost=cost), "digits")
    assert found.estimate is not None
    assert given.estimate is not None
    assert found.estimate.value == pytest.approx(-100.0 * cost - 0.2)
    assert given.estimate.value == pytest.approx(-100.0 * cost - 0.4)
    assert found.verdict == verdict
    assert "16 times the noise variance (mean epsilon 2.5) -20.2 ± 0.5 points, n = 3" in found.reason
    assert "Accuracy without noise 70.4 %" in found.reason


@pytest.mark.parametrize(("gap", "verdict"), [(0.1, "reproduced"), (-0.1, "not reproduced")])
def test_true_groups_against_groups_found(gap: float, verdict: str) -> None:
    claim = shown.claims(_rows(3, gap=gap), "digits")[2]
    assert claim.estimate is not None
    assert claim.estimate.value == pytest.approx(100.0 * gap + 0.2)
    assert claim.verdict == verdict
    assert f"ahead in {3 if gap > 0 else 0} of 3 runs" in claim.reason
    assert "75.0 % of them are right" in claim.reason


def test_one_seed_is_not_testable(tmp_path) -> None:
    assert {claim.verdict for claim in shown.claims(_rows(1), "digits")} == {"not testable"}
    shown.draw(_rows(1), "digits").savefig(tmp_path / "picture.png")


def test_missing_curves_leave_no_estimate(tmp_path) -> None:
    rows = _rows(3, rules=("gradient_loss_0.2",))
    found, given, gap = shown.claims(rows, "digits")
    assert found.verdict == "reproduced"
    assert given.estimate is None
    assert gap.estimate is None
    assert given.verdict == gap.verdict == "not testable"
    assert all(claim.estimate is None for claim in shown.claims([], "digits"))
    only = [row for row in rows if row["factor"] == 0.0]
    for data in (rows, only, []):
        shown.draw(data, "digits").savefig(tmp_path / "picture.png")


def test_picture_names_axes_curves_and_factors() -> None:
    figure = shown.draw(_rows(3), "digits")
    assert isinstance(figure, Figure)
    axis = figure.axes[0]
    assert axis.get_xscale() == "log"
    assert "epsilon" in axis.get_xlabel()
    assert "delta 1e-05" in axis.get_xlabel()
    assert axis.get_ylabel() == "test accuracy"
    assert [text.get_text() for text in axis.texts] == ["noise x 1", "noise x 16", "no noise"]
    legend = {text.get_text() for text in figure.legends[0].get_texts()}
    assert "identities found (n = 3)" in legend
    assert "true groups given, no noise (n = 3)" in legend
    dashed = [line for line in axis.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in dashed] == pytest.approx([0.704, 0.808])
