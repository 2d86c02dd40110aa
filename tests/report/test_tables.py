from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from covey.network import VIOLATION_KINDS
from covey.report import summary_table
from covey.report.sheets import (
    RIGHT,
    WRONG,
    privacy_sheet,
    spread_sheet,
    task_sheet,
    total_sheet,
    user_sheet,
    worst_sheet,
)
from covey.simulation import History


def _printed(history: History, *, width: int = 80, encoding: str = "utf-8") -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        options = console.options.copy()
        options.encoding = encoding
        for line in console.render_lines(summary_table(history), options):
            console.print("".join(segment.text for segment in line), markup=False, highlight=False, soft_wrap=True)
    return capture.get()


def test_privacy_notes_come_first(history: History) -> None:
    text = _printed(history)
    assert text.index("NOT private") < text.index("Tasks after the last round")


def test_nothing_is_cut_off_at_eighty_columns(history: History) -> None:
    text = _printed(history)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert max(map(len, text.splitlines())) <= 80
    for word in ("identity", "accuracy", "epsilon", "group loss before"):
        assert word in text


def test_identities_have_a_mark_and_a_word(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=2, seed=1)
    summary = history.summary()
    marks = [row[4] for row in user_sheet(summary).rows]
    assert marks == [RIGHT if user["identity_right"] else WRONG for user in summary["users"]]
    assert marks.count(WRONG) == round(12 * (1 - history.records[-1].clustering_accuracy))
    assert WRONG in _printed(history)


def test_ascii_terminals_get_ascii(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=2, seed=1, scenario={"name": "caf\N{LATIN SMALL LETTER E WITH ACUTE}"})
    assert _printed(history, encoding="ascii").isascii()


def test_many_users_are_shown_as_a_distribution_and_the_worst(make_history: Callable[..., History]) -> None:
    history = make_history(users=60, rounds=3)
    text = _printed(history)
    assert "Distribution over 60 users" in text
    assert "The 5 users with the lowest accuracy" in text
    worst = [int(row[0]) for row in worst_sheet(history.summary()).rows]
    assert set(worst) == set(np.argsort(history.records[-1].users.accuracy)[:5].tolist())


def test_spread_uses_values_that_occur(make_history: Callable[..., History]) -> None:
    history = make_history(users=60, rounds=1, scenario={"privacy": {"noise": "off"}})
    rows = {row[0]: row[1:] for row in spread_sheet(history.summary()).rows}
    assert rows["epsilon"] == ("0", "0", "0", "unlimited", "unlimited")
    assert rows["samples"][0] == str(history.samples.min())


def test_totals_add_up_and_name_every_violation(history: History) -> None:
    summary = history.summary()
    rows = dict(total_sheet(history, summary).rows)
    listed = [int(value) for label, value in rows.items() if label.startswith(("  chosen", "  left", "  in a"))]
    assert sum(listed) == sum(summary["totals"][name] for name in VIOLATION_KINDS)
    assert rows["Rounds with a violation"] == f"{summary['totals']['rounds_with_violations']} of 15"
    assert "135" in rows["Uploads served"]


def test_tasks_show_their_matched_group_before_and_after(history: History) -> None:
    for row, task in zip(task_sheet(history.summary()).rows, history.summary()["tasks"], strict=True):
        assert row[:2] == (str(task["task"]), str(task["group"]))
        assert float(row[6]) == pytest.approx(history.start["group_loss"][task["group"]], abs=0.005)


def test_empty_tasks_are_called_none_never_nan(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=2)
    last = history.records[-1]
    nothing = float("nan")
    history.records[-1] = replace(
        last, task_loss=[nothing, *last.task_loss[1:]], task_accuracy=[nothing, *last.task_accuracy[1:]]
    )
    assert task_sheet(history.summary()).rows[0][4:6] == ("none", "none")
    assert not re.search(r"\bnan\b", _printed(history))


def test_privacy_sheet_without_noise(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=2, scenario={"privacy": {"noise": "off"}})
    rows = dict(privacy_sheet(history.summary()).rows)
    assert rows["rho of one upload, mean"] == "none"
    assert rows["rho in total, largest and mean"] == "unlimited and unlimited"


def test_no_round(make_history: Callable[..., History]) -> None:
    text = _printed(make_history(played=0))
    assert "NOT private" in text
    assert "interrupted" in text
    assert "No round was played" in text
