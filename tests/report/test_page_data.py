from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from covey.privacy import Ledger
from covey.report.page_data import FRAME_CELLS, frame_data, report_data, rounded, shown_rounds
from covey.simulation import History


def test_the_data_is_strict_json_and_small(history: History) -> None:
    text = json.dumps(report_data(history), allow_nan=False)
    assert json.loads(text) == report_data(history)
    assert len(text) < 40_000


def test_a_thousand_users_stay_below_a_megabyte(make_history: Callable[..., History]) -> None:
    data = report_data(make_history(users=1000, stations=10, tasks=5, rounds=30, blocks=12))
    assert len(data["frames"]) == 30
    assert len(json.dumps(data, separators=(",", ":"))) < 1_000_000


def test_frames_say_who_stands_where_and_who_serves_them(history: History) -> None:
    data = report_data(history)
    assert [frame["round"] for frame in data["frames"]] == list(range(1, 16))
    for frame, record in zip(data["frames"], history.records, strict=True):
        users = record.users
        assert np.allclose(np.array(frame["x_dm"]) / 10, users.x_m, atol=0.051)
        assert np.allclose(np.array(frame["y_dm"]) / 10, users.y_m, atol=0.051)
        assert frame["identity"] == users.identity.tolist()
        station, block = np.full(12, -1), np.full(12, -1)
        station[frame["served"]], block[frame["served"]] = frame["station"], frame["block"]
        assert station.tolist() == users.station.tolist()
        assert block.tolist() == users.block.tolist()
        flags = np.zeros(12, dtype=int)
        flags[frame["violators"]] = frame["flags"]
        assert flags.tolist() == users.violation.tolist()
        right = np.array(frame["matched"])[frame["identity"]] == np.array(data["site"]["groups"])
        assert right.mean() == pytest.approx(record.clustering_accuracy)


def test_positions_are_not_repeated_when_nobody_moves(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=3)
    first = history.records[0].users
    still = replace(history.records[1], users=replace(history.records[1].users, x_m=first.x_m, y_m=first.y_m))
    history.records[1] = still
    frames = report_data(history)["frames"]
    assert ["x_dm" in frame for frame in frames] == [True, False, True]
    # On its own a frame is whole.
    assert "x_dm" in frame_data(history, still)


def test_columns_are_those_of_rounds_csv(history: History) -> None:
    series = report_data(history)["series"]
    assert series["round"] == list(range(1, 16))
    assert series["loss"] == pytest.approx(history.column("loss"), rel=1e-5)
    assert np.array(series["group_accuracy"]) == pytest.approx(history.column("group_accuracy").T, rel=1e-5)


def test_missing_values_are_null(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=2)
    nothing = float("nan")
    history.records[-1] = replace(history.records[-1], task_loss=[nothing] * 4, clipped_fraction=nothing)
    series = report_data(history)["series"]
    assert [values[-1] for values in series["task_loss"]] == [None] * 4
    assert series["clipped_fraction"][-1] is None


def test_epsilons_are_those_of_the_ledger(history: History) -> None:
    data = report_data(history)
    assert data["frames"][-1]["epsilon"] == pytest.approx(history.ledger.epsilon(), rel=1e-3)
    assert data["site"]["privacy"] == {"delta": 1e-5, "method": "exact", "budget": None, "unlimited": False}


def test_epsilons_beside_budgets_are_by_the_formula_of_the_budgets(make_history: Callable[..., History]) -> None:
    history = make_history(users=4, rounds=3)
    budgets = Ledger(4, delta=history.ledger.delta, budget_epsilon=[50.0, 60.0, 70.0, 80.0])
    budgets.spent = history.ledger.spent
    history.ledger = budgets
    data = report_data(history)
    assert data["site"]["privacy"]["method"] == "zcdp"
    assert data["site"]["privacy"]["budget"] == [50, 60, 70, 80]
    assert data["frames"][-1]["epsilon"] == pytest.approx(history.ledger.epsilon("zcdp"), rel=1e-3)


def test_without_noise_epsilons_are_left_out(make_history: Callable[..., History]) -> None:
    data = report_data(make_history(rounds=2, scenario={"privacy": {"noise": "off"}}))
    assert data["site"]["privacy"]["unlimited"]
    assert all("epsilon" not in frame for frame in data["frames"])
    assert data["series"]["epsilon_max"] == [None, None]


def test_a_run_without_rounds_has_a_site_and_nothing_else(make_history: Callable[..., History]) -> None:
    data = report_data(make_history(rounds=4, played=0))
    assert (data["rounds"], data["planned"], data["frames"], data["series"]) == (0, 4, [], {})
    assert len(data["site"]["cells_m"]) == 4


@pytest.mark.parametrize(("rounds", "users"), [(0, 5), (1, 10**6), (30, 1000), (1000, 1000), (7, 50_000)])
def test_long_runs_with_many_users_show_the_first_the_last_and_some_between(rounds: int, users: int) -> None:
    shown = shown_rounds(rounds, users)
    assert shown == sorted(set(shown))
    assert (len(shown) - 2) * users <= FRAME_CELLS
    if rounds:
        assert shown[0] == 0
        assert shown[-1] == rounds - 1
    if rounds * users <= FRAME_CELLS:
        assert len(shown) == rounds


def test_rounding_keeps_significant_digits() -> None:
    assert rounded([123456.7, [0.000123456], 5, 3.0, float("inf"), float("nan"), 0.0], 3) == [
        123000, [0.000123], 5, 3, None, None, 0,
    ]  # fmt: skip
