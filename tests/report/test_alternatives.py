from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from covey.report.alternatives import plot_texts
from covey.simulation import History


def test_texts_give_the_numbers_at_both_ends(history: History) -> None:
    texts = plot_texts(history)
    assert f"group 0 from {history.start['group_loss'][0]:.2f}" in texts["loss"].lower()
    assert "over 15 rounds" in texts["delay"]
    assert "In the end users have spent between" in texts["privacy"]
    assert "chosen by more than one station" in texts["violations"]


def test_many_groups_are_told_by_their_range(make_history: Callable[..., History]) -> None:
    texts = plot_texts(make_history(users=30, tasks=20, stations=10, rounds=2))
    assert re.search(r"Groups end between [\d.]+ and [\d.]+\.", texts["loss"])


def test_undefined_and_infinite_values_are_words(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=2, scenario={"privacy": {"noise": "off"}})
    nothing = float("nan")
    history.records[:] = [
        replace(record, task_loss=[nothing] * 4, clipped_fraction=nothing, **dict.fromkeys(("violators",), 0))
        for record in history.records
    ]
    texts = plot_texts(history)
    assert "unlimited" in texts["spent"]
    assert texts["task_loss"].endswith("Not known.")
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(texts.values()))


def test_runs_without_violations_say_so(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=1)
    kinds = dict.fromkeys(("unable", "beyond_blocks", "selected_twice", "no_block", "no_broadcast"), 0)
    history.records[0] = replace(history.records[0], **kinds)
    assert "No rule was broken" in plot_texts(history)["violations"]
