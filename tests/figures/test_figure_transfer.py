"""Policies at other sizes: rows, claims and picture from known numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from matplotlib.figure import Figure

from covey.figures.cells import Cell
from covey.figures.kinds import Played, Training
from covey.figures.plans import Work, figure_transfer
from covey.figures.rows import read_rows, write_rows
from covey.figures.scales import SCALES
from covey.figures.shown import figure_transfer as shown

#: Mean reward by policy; guarded policies lose at the larger size.
REWARD = {
    (12, 4): {"nearest": -900.0, "coverage": -190.0, "greedy": -200.0, "dpvd": -240.0, "dpvd_guarded": -180.0},
    (100, 16): {"nearest": -900.0, "coverage": -190.0, "greedy": -200.0, "dpvd": -300.0, "dpvd_guarded": -220.0},
}


def _rows(seeds: int, policies: tuple[str, ...] = tuple(shown.NAMES)) -> list[dict[str, Any]]:
    """Two layouts, 10 apart on both sides of the mean; the second and further policies earn 2 more each."""
    found = []
    for (users, stations), rewards in REWARD.items():
        for policy in policies:
            learned = policy.startswith("dpvd")
            for seed in range(seeds) if learned else (math.nan,):
                for layout in (0, 1):
                    found.append({
                        "users": users, "stations": stations, "blocks": 4, "side_m": 500.0, "policy": policy,
                        "seed": seed, "trained_users": 12 if learned else math.nan,
                        "trained_stations": 4 if learned else math.nan, "layout": 200 + layout,
                        "reward": rewards[policy] + (20 * layout - 10) + (2.0 * seed if learned else 0.0),
                        "violators": 3.0 if policy == "dpvd" else 0.0, "served": 9.0 if policy == "greedy" else 4.0,
                        "decision_ms": 0.5,
                    })  # fmt: skip
    return found


class FakeStore:
    """Everything is finished but guarded policies of seed 1."""

    def has(self, cell: Cell) -> bool:
        if isinstance(cell, Played) and isinstance(cell.policy, Training):
            return not (cell.way == "guarded" and cell.policy.seed == 1)
        return True

    def __getitem__(self, cell: Cell) -> dict[str, Any]:
        if isinstance(cell, Training):
            return {"validation": {"alone": 1.0}}
        return {"reward": [-1.0, -2.0], "violators": [0.0, 1.0], "served": [3.0, 4.0], "decision_ms": 0.2}


def test_rows_are_one_per_layout_of_finished_cells() -> None:
    work = Work(SCALES["quick"], 2, FakeStore())  # type: ignore[arg-type]
    found = shown.rows(work)
    played = [cell for cell in figure_transfer(work) if isinstance(cell, Played)]
    assert len(found) == 2 * (len(played) - len(SCALES["quick"].sizes))
    assert {(row["users"], row["stations"]) for row in found} == {(12, 4), (24, 4), (48, 8)}
    guarded = [row for row in found if row["policy"] == "dpvd_guarded"]
    assert {row["seed"] for row in guarded} == {0}
    assert {(row["trained_users"], row["trained_stations"]) for row in guarded} == {(12, 4)}
    assert [(row["layout"], row["reward"]) for row in guarded[:2]] == [(200, -1.0), (201, -2.0)]
    assert all(math.isnan(row["seed"]) for row in found if row["policy"] == "greedy")


def test_reward_is_relative_to_greedy_and_one_value_per_policy() -> None:
    assert shown.against_greedy(_rows(3), (12, 4), "dpvd_guarded") == pytest.approx([10.0, 11.0, 12.0])
    assert shown.against_greedy(_rows(3), (100, 16), "dpvd") == pytest.approx([-50.0, -49.0, -48.0])
    assert len(shown.against_greedy(_rows(3, ("dpvd",)), (12, 4), "dpvd")) == 0


def test_claims_are_judged_at_every_size(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    write_rows(path, _rows(3))
    small, large, alone_small, alone_large = shown.claims(read_rows(path), "digits")
    assert small.claim == (
        "Guarded DPVD trained with 12 users and 4 stations earns more than greedy with 12 users and 4 stations."
    )
    assert small.estimate is not None
    assert small.estimate.value == pytest.approx(11.0)
    assert small.verdict == "reproduced"
    assert "Policies range from +10.0 to +12.0 %; at or above greedy in 6 of 6 episodes" in small.reason
    assert large.estimate is not None
    assert large.estimate.value == pytest.approx(-9.0)
    assert large.verdict == alone_small.verdict == alone_large.verdict == "not reproduced"
    assert "at or above greedy in 0 of 6 episodes" in large.reason
    assert "Served per round 4.0, by greedy 9.0; 3.00 violators an episode, by greedy 0.00" in alone_large.reason


def test_one_policy_is_not_testable(tmp_path) -> None:
    assert {claim.verdict for claim in shown.claims(_rows(1), "digits")} == {"not testable"}
    shown.draw(_rows(1), "digits").savefig(tmp_path / "picture.png")


@pytest.mark.parametrize("policies", [("greedy",), ("dpvd", "dpvd_guarded"), ("nearest",)])
def test_missing_policies_leave_no_estimate(policies: tuple[str, ...], tmp_path) -> None:
    rows = _rows(3, policies)
    found = shown.claims(rows, "digits")
    assert len(found) == 4
    assert all(claim.estimate is None and claim.verdict == "not testable" for claim in found)
    assert all("No data" in claim.reason for claim in found)
    shown.draw(rows, "digits").savefig(tmp_path / "picture.png")


def test_nothing_at_all_is_drawn_too(tmp_path) -> None:
    assert shown.claims([], "digits") == []
    shown.draw([], "digits").savefig(tmp_path / "picture.png")


def test_picture_has_sizes_units_and_policies() -> None:
    figure = shown.draw(_rows(3), "digits")
    assert isinstance(figure, Figure)
    reward, violators, decision = figure.axes
    assert [label.get_text() for label in reward.get_xticklabels()] == ["12\n/ 4", "100\n/ 16"]
    assert "%" in reward.get_ylabel()
    assert "users" in violators.get_ylabel()
    assert "ms" in decision.get_ylabel()
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["nearest", "coverage", "greedy", "DPVD, alone (n = 3)", "DPVD, guarded (n = 3)"]
    assert reward.get_ylim()[0] > -900.0  # nearest is not on this axis
