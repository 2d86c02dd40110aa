"""Reports of runs with more or fewer tasks than groups."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from covey.report import reading, summary_table, write_report
from covey.report.page_data import report_data
from covey.report.palette import group_colours, group_words, slot_count, slot_of_task, task_colours
from covey.report.sheets import confusion_sheet, task_sheet
from covey.simulation import History

SIZES = [(2, 4), (7, 3), (1, 3), (3, 1), (3, 12)]
ASSETS = Path(reading.__file__).parent / "assets"


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"K{size[0]}-G{size[1]}")
def uneven(request: pytest.FixtureRequest, make_history: Callable[..., History]) -> History:
    tasks, groups = request.param
    return make_history(tasks=tasks, groups=groups, rounds=4, seed=2)


def test_every_file_is_written_and_shows_no_nan(uneven: History, tmp_path: Path) -> None:
    for path in write_report(uneven, tmp_path, {"covey": "0"}):
        assert path.stat().st_size > 500
    page = (tmp_path / "report.html").read_text()
    shown = re.sub(r"<script.*?</script>|<style.*?</style>", " ", page, flags=re.DOTALL)
    assert not re.search(r"\b(nan|NaN|None)\b", re.sub(r"<[^>]*>", " ", shown))
    console = Console(file=io.StringIO(), width=200)
    console.print(summary_table(uneven))
    assert not re.search(r"\b(nan|NaN|None|-1)\b", console.file.getvalue())


def test_tasks_have_the_signs_of_their_group_or_their_own(uneven: History) -> None:
    tasks, groups = uneven.scenario.network.tasks, uneven.scenario.groups
    slots, matched = slot_of_task(uneven), uneven.matched(uneven.records[-1])
    assert len(set(slots.tolist())) == tasks, "two tasks look alike"
    assert slot_count(uneven) == max(tasks, groups) > slots.max()
    np.testing.assert_array_equal(slots[matched >= 0], matched[matched >= 0])
    assert (slots[matched < 0] >= groups).all()
    assert task_colours(uneven) == [group_colours(max(tasks, groups))[slot] for slot in slots]
    words = [f"group {group}" if group >= 0 else "no group" for group in matched]
    assert group_words(uneven) == words


def test_the_data_of_the_page_are_by_task_and_by_group(uneven: History) -> None:
    tasks, groups = uneven.scenario.network.tasks, uneven.scenario.groups
    data = json.loads(json.dumps(report_data(uneven), allow_nan=False))
    site = data["site"]
    assert (site["tasks"], site["group_count"], len(site["matched"])) == (tasks, groups, tasks)
    assert all(len(colours) == max(tasks, groups) for colours in site["colours"].values())
    assert (len(data["series"]["task_loss"]), len(data["series"]["group_loss"])) == (tasks, groups)
    for frame, record in zip(data["frames"], uneven.records, strict=True):
        assert frame["matched"] == uneven.matched(record).tolist()


def test_tables_have_a_row_for_each_group_and_a_dash_where_a_task_has_none(uneven: History) -> None:
    tasks, groups = uneven.scenario.network.tasks, uneven.scenario.groups
    sheet = confusion_sheet(uneven)
    assert (len(sheet.heads), len(sheet.rows)) == (tasks + 1, groups)
    assert sum(int(cell) for row in sheet.rows for cell in row[1:]) == 12
    rows = task_sheet(uneven.summary()).rows
    assert sum(row[1] == "-" for row in rows) == max(tasks - groups, 0)


def test_sentences_say_who_shares_and_what_is_left_over(make_history: Callable[..., History]) -> None:
    history = make_history(tasks=2, groups=4, rounds=30)
    text = " ".join(reading.on_identities(history, history.summary()))
    assert "4 groups for 2 tasks" in text
    assert "at most 50.0 % of the identities can be" in text
    for task, groups in history.shared_models().items():
        assert f"Groups {' and '.join(map(str, groups))} share the model of task {task}." in text
    assert history.shared_models()
    history = make_history(tasks=7, groups=3, rounds=60)
    unused = history.unused_tasks()
    text = " ".join(reading.on_identities(history, history.summary()))
    assert unused
    assert (
        f"No user ended with tasks {', '.join(map(str, unused[:-1]))} and {unused[-1]}; {7 - len(unused)} of 7" in text
    )
    assert "of which 3 groups need 3" in text
    assert "share the model" not in text


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_page_counts_groups_by_tasks(tmp_path: Path) -> None:
    for name in ("confusion", "frames", "canvas", "theme", "words"):
        shutil.copy(ASSETS / f"{name}.js", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "check.js").write_text(
        'import { taskOrder } from "./confusion.js";\nimport { confusion, describeConfusion } from "./frames.js";\n'
        "const site = { tasks: 2, group_count: 3, groups: [0, 1, 2, 2, -1] };\n"
        "const frame = { identity: [1, 0, 0, 1, 0], matched: [2, 0] };\n"
        "const said = [taskOrder([-1, 2, -1, 0, 1]), confusion(site, frame), describeConfusion(site, frame)];\n"
        "console.log(JSON.stringify(said));\n"
    )
    answer = subprocess.run(["node", "check.js"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    order, counts, words = json.loads(answer.stdout)
    assert order == [3, 4, 1, 0, 2]
    assert counts == [[0, 1], [1, 0], [1, 1]]
    assert words.startswith("Group 0: 1 in task 1. Group 1: 1 in task 0. Group 2: 1 in task 0, 1 in task 1.")
