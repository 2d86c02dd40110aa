from __future__ import annotations

import numpy as np
import pytest

from covey.association import validated_selection
from covey.errors import PolicyError


@pytest.mark.parametrize("answer", [[[1, 0, 0], [0, 1, 0]], np.array([[True, False, False], [False, True, False]])])
def test_zeros_and_ones_are_a_selection(answer: object) -> None:
    selected = validated_selection(answer, 3, 2)
    assert selected.dtype == np.bool_
    assert selected.tolist() == [[True, False, False], [False, True, False]]


def test_the_answer_is_copied() -> None:
    answer = np.zeros((2, 3), dtype=bool)
    selected = validated_selection(answer, 3, 2)
    answer[:] = True
    assert not selected.any()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros((3, 2), dtype=bool), r"shape \(3, 2\); it must be \(2, 3\)"),
        (None, "shape"),
        ([0, 1], "shape"),
        ([[0, 1], [1]], "not an array"),
        (np.full((2, 3), 0.5), "only True and False"),
        (np.full((2, 3), np.nan), "only True and False"),
        (np.full((2, 3), 2), "only True and False"),
        (np.full((2, 3), "yes"), "only True and False"),
        (np.full((2, 3), None), "only True and False"),
    ],
)
def test_anything_else_is_refused(answer: object, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        validated_selection(answer, 3, 2)
