from __future__ import annotations

from collections.abc import Callable

import matplotlib as mpl
import numpy as np
import pytest

from covey.report.page_data import PAGES
from covey.report.palette import (
    STYLE,
    contrast,
    drawing_style,
    group_colours,
    group_markers,
    ink_on,
    readable,
    slot_of_task,
    task_colours,
)
from covey.simulation import History


def _luminance(colour: str) -> float:
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in mpl.colors.to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("groups", [1, 4, 8, 9, 30])
def test_every_group_has_its_own_colour(groups: int) -> None:
    colours = group_colours(groups)
    assert len(colours) == len(set(colours)) == groups


def test_markers_differ_wherever_colours_are_categorical() -> None:
    assert len(set(group_markers(8))) == 8
    assert "^" not in group_markers(30)  # stations
    assert "x" not in group_markers(30)  # violations


def test_more_than_eight_groups_are_ordered_by_lightness() -> None:
    lightness = [_luminance(colour) for colour in group_colours(20)]
    assert np.all(np.diff(lightness) > 0)


@pytest.mark.parametrize("colour", [*group_colours(8), *group_colours(12), "#ffffff", "#000000"])
def test_ink_keeps_a_contrast_of_at_least_four(colour: str) -> None:
    bright, dark = sorted((_luminance(colour), _luminance(ink_on(colour))), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 4.0


def test_no_type_is_below_eight_points() -> None:
    sizes = [value for key, value in STYLE.items() if key.endswith(("size", "fontsize"))]
    assert sizes
    assert min(sizes) >= 8.0


def test_a_task_has_the_colour_of_its_matched_group(history: History) -> None:
    groups = slot_of_task(history)
    assert sorted(groups) == list(range(4))
    assert task_colours(history) == [group_colours(4)[group] for group in groups]
    last = history.records[-1].users.identity
    agreeing = np.mean(groups[last] == history.groups)
    assert agreeing == history.records[-1].clustering_accuracy


def test_matching_before_the_first_round(make_history: Callable[..., History]) -> None:
    assert slot_of_task(make_history(played=0)).tolist() == [0, 1, 2, 3]


def test_drawing_leaves_global_settings_alone() -> None:
    before = dict(mpl.rcParams)
    with drawing_style(**{"axes.grid": False}):
        assert mpl.rcParams["axes.grid"] is False
        assert mpl.rcParams["font.size"] == STYLE["font.size"]
    assert dict(mpl.rcParams) == before


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("white", "black") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#123456", "#123456") == 1.0


@pytest.mark.parametrize("page", PAGES.values())
@pytest.mark.parametrize("groups", [1, 4, 8, 20])
def test_colours_stand_out_from_light_and_dark_pages_and_from_each_other(page: str, groups: int) -> None:
    colours = [readable(colour, page) for colour in group_colours(groups)]
    assert min(contrast(colour, page) for colour in colours) >= 3.0
    assert len(set(colours)) == groups


def test_colours_that_stand_out_already_are_kept() -> None:
    assert readable("#0072B2", "#ffffff") == "#0072b2"
