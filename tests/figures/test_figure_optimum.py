"""Distance from the optimum: rows, claims and picture from known numbers."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

from covey.figures.cells import Cell
from covey.figures.kinds import Optimum, Training
from covey.figures.plans import Work
from covey.figures.rows import read_rows, write_rows
from covey.figures.scales import SCALES
from covey.figures.shown import figure_optimum as shown

#: Regret of seed 0 in per cent of the best, by policy.
REGRET = {"best": 0.0, "random": 20.0, "greedy": 10.0, "exact": 8.0, "dpvd_guarded": 5.0, "dpvd": 15.0, "iql": 12.0}


def _rows(seeds: int, regret: dict[str, float] = REGRET) -> list[dict[str, Any]]:
    """Regret and loss of reward grow with the policy; layouts shift all alike, and a policy by a tenth a seed."""
    return [
        {
            "policy": policy, "seed": seed, "rounds": 10, "regret": 10.0 * value + 0.1 * value * seed,
            "best_size": 1000.0, "best_over_nobody": 200.0, "optimal_rounds": 10 if policy == "best" else 3,
            "reward": -100.0 - 2.0 * value - (0.01 * value * seed), "violators": 2.0 if policy == "dpvd" else 0.0,
        }
        for policy, value in regret.items()
        for seed in range(seeds)
    ]  # fmt: skip


class FakeStore:
    """Trials are finished for DPVD alone; of the rest, everything."""

    def has(self, cell: Cell) -> bool:
        return not isinstance(cell, Training) or cell.learner.algorithm == "dpvd"

    def __getitem__(self, cell: Cell) -> dict[str, Any]:
        if isinstance(cell, Training):
            return {"validation": {"alone": 1.0}}
        assert isinstance(cell, Optimum)
        columns = {"best": [-100.0, -50.0], "own": [-100.0 - 1e-9, -65.0], "nobody": [-120.0, -80.0]}
        return {"columns": columns | {"reward": [-30.0, -40.0], "violators": [0.0, 3.0]}}


def test_rows_are_totals_of_finished_episodes() -> None:
    found = shown.rows(Work(SCALES["quick"], 2, FakeStore()))  # type: ignore[arg-type]
    assert {row["policy"] for row in found} == {"best", *shown.NAMES} - {"iql", "qmix"}
    assert len(found) == 2 * 9
    row = found[-1]
    assert row["regret"] == pytest.approx(15.0)
    assert row["best_size"] == pytest.approx(150.0)
    assert row["best_over_nobody"] == pytest.approx(50.0)
    assert (row["optimal_rounds"], row["rounds"]) == (1, 2)
    assert (row["reward"], row["violators"]) == (-70.0, 3.0)


def test_measures_are_in_per_cent() -> None:
    rows = _rows(2)
    assert shown.regrets(rows, "greedy") == pytest.approx({0: 10.0, 1: 10.1})
    assert shown.optimal_shares(rows, "greedy") == {0: 30.0, 1: 30.0}
    assert shown.rewards_lost(rows, "greedy") == pytest.approx({0: 20.0, 1: 20.1})
    assert shown.rewards_lost([row for row in rows if row["policy"] != "best"], "greedy") == {}


def test_claims_compare_policies_layout_by_layout() -> None:
    guarded, episode, alone, iql = shown.claims(_rows(3), "digits")
    assert guarded.estimate is not None
    assert guarded.estimate.value == pytest.approx(-5.05)
    assert guarded.verdict == "reproduced"
    assert episode.estimate is not None
    assert episode.estimate.value == pytest.approx(-10.05)
    assert episode.verdict == "reproduced"
    assert alone.estimate is not None
    assert alone.estimate.value == pytest.approx(5.05)
    assert alone.verdict == "not reproduced"
    assert iql.estimate is not None
    assert iql.estimate.value == pytest.approx(3.03)
    assert iql.verdict == "not reproduced"


def test_reasons_are_computed_from_the_rows() -> None:
    alone = shown.claims(_rows(1), "digits")[2]
    assert "DPVD alone gets 25 % and greedy 50 %" in alone.reason
    assert "best choice in 30 % and 30 % of rounds, with 2.0 and 0.0 violators" in alone.reason
    assert "Means: DPVD guarded 5.0 %, exact sample maximum 8.0 %, greedy 10.0 %" in alone.reason


def test_one_seed_is_not_testable(tmp_path) -> None:
    assert {claim.verdict for claim in shown.claims(_rows(1), "digits")} == {"not testable"}
    shown.draw(_rows(1), "digits").savefig(tmp_path / "picture.png")


def test_missing_policies_leave_no_estimate(tmp_path) -> None:
    rows = _rows(3, {"greedy": 10.0, "dpvd": 5.0})
    guarded, episode, alone, iql = shown.claims(rows, "digits")
    assert guarded.estimate is episode.estimate is iql.estimate is None
    assert guarded.verdict == "not testable"
    assert "No data of DPVD guarded." in guarded.reason
    assert alone.verdict == "reproduced"
    assert all(claim.estimate is None for claim in shown.claims([], "digits"))
    for data in (rows, []):
        shown.draw(data, "digits").savefig(tmp_path / "picture.png")


def test_picture_is_sorted_by_regret_and_hides_the_best_itself(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    write_rows(path, _rows(3))
    figure = shown.draw(read_rows(path), "digits")
    assert isinstance(figure, Figure)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [
        "DPVD guarded (n = 3)", "exact sample maximum (n = 3)", "greedy (n = 3)", "IQL alone (n = 3)",
        "DPVD alone (n = 3)", "random (n = 3)",
    ]  # fmt: skip
    assert all("%" in axis.get_xlabel() for axis in figure.axes)
    first = figure.axes[0].lines[0]
    assert list(first.get_xdata()) == pytest.approx([5.0, 5.05, 5.1])
