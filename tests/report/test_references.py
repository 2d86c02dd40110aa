"""Where accuracy is shown, what it is read against is shown beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from covey.report import reading
from covey.report.alternatives import plot_texts
from covey.report.curves import draw_panel
from covey.report.html import render_html
from covey.report.page_data import report_data
from covey.report.sheets import accuracy_sheet, user_sheet
from covey.report.tables import summary_table
from covey.simulation import History
from covey.simulation.reference import with_central


@pytest.fixture
def compared(make_history: Callable[..., History]) -> History:
    """A run whose central model is right in 0.91 of the samples of users of even number, 0.95 of the others."""
    made = make_history()
    sizes = np.full(len(made.samples), 30)
    central = np.where(np.arange(len(made.samples)) % 2, 0.95, 0.91)
    made.records[:] = [with_central(record, central, sizes) for record in made.records]
    return made


def shown(history: History) -> str:
    console = Console(width=120, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(summary_table(history))
    return " ".join(console.export_text().split())


def test_the_terminal_shows_both_lines(compared: History, history: History) -> None:
    with_both, with_one = shown(compared), shown(history)
    guess = f"{100 * history.records[-1].majority:.1f} %"
    assert f"({guess} by the most frequent class; 93.0 % by a central model)" in with_both
    assert f"({guess} by the most frequent class)" in with_one
    assert "central" not in with_one


def test_the_table_of_accuracies_has_a_row_for_all_and_one_for_each_group(compared: History, history: History) -> None:
    sheet = accuracy_sheet(compared)
    assert sheet.heads == ("users", "accuracy", "most frequent class", "central model")
    assert [row[0] for row in sheet.rows] == ["all", "group 0", "group 1", "group 2", "group 3"]
    assert sheet.rows[0][3] == "93.0 %"
    last = compared.records[-1]
    assert [row[2] for row in sheet.rows[1:]] == [f"{100 * value:.1f} %" for value in last.group_majority]
    assert accuracy_sheet(history).heads == ("users", "accuracy", "most frequent class")


def test_the_table_of_users_has_them_where_there_is_room(compared: History) -> None:
    summary = compared.summary()
    assert {"guess", "central"} <= set(user_sheet(summary, beside=True).heads)
    assert not {"guess", "central"} & set(user_sheet(summary).heads)


def test_the_page_shows_both_lines_in_tile_text_tables_and_data(compared: History) -> None:
    page = render_html(compared, versions={})
    assert "93.0 % central model" in page
    assert "Naming each user&#x27;s most frequent class is right in" in page
    assert '<th scope="col">central model</th>' in page or "central model</th>" in page
    series = report_data(compared)["series"]
    assert series["central"][-1] == pytest.approx(0.93)
    assert series["majority"][-1] == pytest.approx(compared.records[-1].majority)
    assert "A central model: 93.0 %." in plot_texts(compared)["accuracy"]


def test_the_picture_draws_them_at_their_height(compared: History, history: History) -> None:
    axes = draw_panel(compared, "accuracy").axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert set(np.asarray(lines["central"].get_ydata()).tolist()) == {compared.records[-1].central}
    assert set(np.asarray(lines["guessing"].get_ydata()).tolist()) == {compared.records[-1].majority}
    assert np.asarray(lines["guessing"].get_xdata())[0] == 0
    without = {line.get_label() for line in draw_panel(history, "accuracy").axes[0].get_lines()}
    assert "guessing" in without
    assert "central" not in without


def test_the_text_says_whether_accuracy_is_clearly_above(compared: History) -> None:
    told = " ".join(reading.on_learning(compared, compared.summary()))
    assert "clearly above that of naming the class" in told
    assert "over 12 users" in told
    last = compared.records[-1]
    guessed = replace(last, users=replace(last.users, majority=last.users.accuracy.copy()))
    poor = replace(compared, records=[*compared.records[:-1], guessed])
    assert "Accuracy is not clearly above" in " ".join(reading.on_learning(poor, poor.summary()))
    assert poor.summary()["above_majority"] == {"value": 0.0, "low": 0.0, "high": 0.0, "n": 12}


def test_devices_elsewhere_have_no_line_and_nothing_is_said(history: History) -> None:
    nothing = np.full(len(history.samples), np.nan)
    records = [
        replace(record, majority=np.nan, group_majority=[np.nan] * 4, users=replace(record.users, majority=nothing))
        for record in history.records
    ]
    unknown = replace(history, records=records)
    assert "most frequent" not in shown(unknown)
    assert unknown.summary()["above_majority"] is None
    assert "guessing" not in {line.get_label() for line in draw_panel(unknown, "accuracy").axes[0].get_lines()}
