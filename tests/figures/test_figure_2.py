from __future__ import annotations

from pathlib import Path

import pytest

from covey.figures.cells import cells_in
from covey.figures.plans import Work, figure_2
from covey.figures.rows import Row, read_rows, write_rows
from covey.figures.scales import SCALES
from covey.figures.shown.figure_2 import claims, draw, rows

CLASSES = ["cat", "dog", "ship"]


def table(counts: list[list[int]], groups: list[int]) -> list[Row]:
    return [
        {"seed": 0, "user": user, "group": group, "label": label, "class": CLASSES[label], "samples": samples}
        for user, (mine, group) in enumerate(zip(counts, groups, strict=True))
        for label, samples in enumerate(mine)
    ]


def test_groups_that_differ_are_told_apart() -> None:
    # Within: 3:1 against 1:1, 25 points. Between: nothing in common, 100 points.
    data = table([[30, 10, 0], [5, 5, 0], [0, 0, 8], [0, 0, 20]], [0, 0, 1, 1])
    (claim,) = claims(data, "here")
    assert claim.estimate is not None
    assert claim.estimate.value == pytest.approx((75.0 + 75.0 + 100.0 + 100.0) / 4)
    assert claim.estimate.n == 4
    assert claim.verdict == "reproduced"
    assert claim.setting == "here"
    assert "12.5 points over 2 pairs within groups (at most 25.0)" in claim.reason
    assert "100.0 over 4 pairs between groups" in claim.reason
    assert "In 2 of 2 groups" in claim.reason
    assert "8 to 40 samples" in claim.reason


def test_groups_that_do_not_differ_are_not_reproduced() -> None:
    data = table([[10, 0, 0], [0, 10, 0], [10, 0, 0], [0, 10, 0]], [0, 0, 1, 1])
    (claim,) = claims(data, "here")
    assert claim.estimate is not None
    assert claim.estimate.value == pytest.approx(50.0 - 100.0)
    assert claim.verdict == "not reproduced"
    assert "In 0 of 2 groups" in claim.reason


@pytest.mark.parametrize("groups", [[], [0], [0, 0], [0, 1]])
def test_without_two_groups_with_company_nothing_is_tested(groups: list[int]) -> None:
    data = table([[3, 1, 0]] * len(groups), groups)
    (claim,) = claims(data, "here")
    assert claim.estimate is None
    assert claim.verdict == "not testable"
    draw(data, "here")


def test_bars_stand_by_group_with_every_class_that_is_held() -> None:
    data = table([[0, 0, 8], [30, 10, 0], [0, 0, 20], [6, 2, 0]], [1, 0, 1, 0])
    axis = draw(data, "here").axes[0]
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["1", "3", "0", "2"]
    assert [text.get_text() for text in axis.texts] == ["group 0", "group 1"]
    legend = axis.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["ship", "dog", "cat"]
    heights = [[bar.get_height() for bar in bars] for bars in axis.containers]
    assert heights == [[30, 6, 0, 0], [10, 2, 0, 0], [0, 0, 8, 20]]
    without = draw([row for row in data if row["class"] != "dog"], "here").axes[0].get_legend()
    assert without is not None
    assert [text.get_text() for text in without.get_texts()] == ["ship", "cat"]


def test_rows_come_from_the_finished_cell_and_survive_the_file(tmp_path: Path) -> None:
    work = Work(SCALES["quick"], 1, cells_in(tmp_path))
    assert rows(work) == []
    values = {"counts": [[3, 0], [0, 4]], "groups": [1, 0], "classes": ["7", "8"]}
    work.store.keep(figure_2(work)[0], values)
    found = rows(work)
    assert [(row["user"], row["group"], row["label"], row["samples"]) for row in found] == [
        (0, 1, 0, 3), (0, 1, 1, 0), (1, 0, 0, 0), (1, 0, 1, 4),
    ]  # fmt: skip
    write_rows(tmp_path / "2.csv", found)
    legend = draw(read_rows(tmp_path / "2.csv"), "here").axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["8", "7"]
