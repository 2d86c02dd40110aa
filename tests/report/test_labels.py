from __future__ import annotations

import numpy as np

from covey.report.labels import LabelPlacer, around, text_size


def test_the_first_candidate_wins_on_an_empty_field() -> None:
    placer = LabelPlacer(100, 100)
    candidates = np.array([[50.0, 50.0], [20.0, 20.0]])
    assert placer.place(candidates, (10, 10)).tolist() == [50.0, 50.0]


def test_an_occupied_place_is_avoided() -> None:
    placer = LabelPlacer(100, 100)
    placer.occupy(np.array([50.0, 50.0]), (10, 10))
    assert placer.place(np.array([[50.0, 50.0], [20.0, 20.0]]), (10, 10)).tolist() == [20.0, 20.0]


def test_a_placed_label_is_occupied_for_the_next() -> None:
    placer = LabelPlacer(100, 100)
    candidates = np.array([[50.0, 50.0], [52.0, 50.0], [80.0, 50.0]])
    placer.place(candidates, (10, 10))
    assert placer.place(candidates, (10, 10)).tolist() == [80.0, 50.0]


def test_places_outside_the_field_are_avoided() -> None:
    placer = LabelPlacer(100, 100)
    assert placer.place(np.array([[0.0, 50.0], [30.0, 50.0]]), (10, 10)).tolist() == [30.0, 50.0]


def test_reluctance_outweighs_a_small_overlap() -> None:
    placer = LabelPlacer(100, 100)
    placer.occupy_line(np.array([0.0, 50.0]), np.array([100.0, 50.0]))
    candidates = np.array([[50.0, 50.0], [50.0, 70.0]])
    assert placer.place(candidates, (12, 12), np.array([0.0, 2.0])).tolist() == [50.0, 50.0]
    assert placer.place(candidates, (12, 12), np.array([0.0, 0.0])).tolist() == [50.0, 70.0]


def test_labels_around_a_point_do_not_touch_it() -> None:
    centre, size = np.array([50.0, 50.0]), (20.0, 10.0)
    for spot in around(centre, size, 5.0):
        gap = np.maximum(np.abs(spot - centre) - np.array(size) / 2, 0.0)
        assert gap.max() > 0.0


def test_text_grows_with_its_lines_and_letters() -> None:
    width, height = text_size("ab\nabcd", 8.0)
    assert (width, height) > text_size("ab", 8.0)
    assert height == 2 * text_size("abcd", 8.0)[1]
