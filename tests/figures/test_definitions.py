"""What convergence, change and variance mean in numbers."""

from __future__ import annotations

import numpy as np
import pytest

from covey.evaluation import Estimate
from covey.figures.claims import judge, judge_equal, judge_side, words
from covey.figures.definitions import (
    change,
    convergence_epoch,
    difference,
    final_reward,
    smoothed,
    variance_change,
)


def test_smoothing_is_the_mean_of_the_last_values() -> None:
    values = np.arange(20.0)
    expected = [values[max(i - 9, 0) : i + 1].mean() for i in range(20)]
    np.testing.assert_allclose(smoothed(values), expected)
    assert final_reward(values) == pytest.approx(14.5)


def test_convergence_is_the_first_epoch_from_which_the_curve_stays() -> None:
    assert convergence_epoch(np.full(50, -3.0)) == 1
    jump = np.concatenate([np.full(30, -100.0), np.zeros(70)])
    # The mean of ten reaches -5, which is 5 % of the span, with nearly all ten values at 0.
    away = np.abs(smoothed(jump)) > 5.0
    assert convergence_epoch(jump) == np.flatnonzero(away)[-1] + 2 == 40
    relapse = jump.copy()
    relapse[80:85] = -100.0
    assert convergence_epoch(relapse) > 85


def test_a_faster_curve_converges_earlier() -> None:
    epochs = np.arange(100.0)
    assert convergence_epoch(-np.exp(-epochs / 5)) < convergence_epoch(-np.exp(-epochs / 15))


def test_change_is_paired_and_relative_to_the_size_of_the_other() -> None:
    found = change([-80.0, -90.0], [-100.0, -110.0])
    assert found is not None
    assert found.value == pytest.approx(100 * 20 / 105)
    assert found.low == pytest.approx(found.high)
    assert change([], []) is None
    assert change([1.0, 2.0], [0.0, 0.0]) is None
    nothing = change([0.0, 0.0], [0.0, 0.0])
    assert nothing is not None
    assert (nothing.value, nothing.n) == (0.0, 2)


def test_difference_scales() -> None:
    found = difference([0.9, 0.8], [0.8, 0.8], scale=100.0)
    assert found is not None
    assert found.value == pytest.approx(5.0)
    assert difference([], []) is None


def test_variance_change_knows_a_tenth_of_the_variance() -> None:
    rng = np.random.default_rng(0)
    theirs = rng.normal(size=400)
    found = variance_change(np.sqrt(0.1) * theirs, theirs)
    assert found is not None
    assert found.value == pytest.approx(-90.0)
    same = variance_change(rng.normal(size=400), theirs)
    assert same is not None
    assert same.low < 0.0 < same.high
    assert variance_change(theirs[:2], theirs[:2]) is None
    assert variance_change(theirs, np.zeros(400)) is None


@pytest.mark.parametrize(
    ("low", "high", "claimed", "verdict"),
    [
        (12.0, 20.0, 15.0, "reproduced"),
        (20.0, 30.0, 15.0, "reproduced"),
        (2.0, 8.0, 15.0, "direction only"),
        (-1.0, 20.0, 15.0, "not testable"),
        (-1.0, 14.0, 15.0, "not reproduced"),
        (-9.0, -2.0, 15.0, "not reproduced"),
        (-30.0, -15.0, -20.0, "reproduced"),
        (-9.0, -2.0, -20.0, "direction only"),
        (2.0, 9.0, -20.0, "not reproduced"),
    ],
)
def test_verdicts_on_differences(low: float, high: float, claimed: float, verdict: str) -> None:
    assert judge(Estimate((low + high) / 2, low, high, 10), claimed) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-3.0, 4.0, "reproduced"),
        (-7.0, 4.0, "not testable"),
        (6.0, 9.0, "not reproduced"),
        (-9.0, -6.0, "not reproduced"),
    ],
)
def test_verdicts_on_equality(low: float, high: float, verdict: str) -> None:
    assert judge_equal(Estimate((low + high) / 2, low, high, 10)) == verdict


@pytest.mark.parametrize(
    ("low", "high", "side", "verdict"),
    [
        (0.1, 0.2, 1, "reproduced"),
        (-1.0, 4.0, 1, "not reproduced"),
        (-1.0, 6.0, 1, "not testable"),
        (-9.0, -2.0, 1, "not reproduced"),
        (-9.0, -2.0, -1, "reproduced"),
        (-9.0, 2.0, -1, "not testable"),
        (1.0, 2.0, -1, "not reproduced"),
    ],
)
def test_verdicts_on_directions(low: float, high: float, side: int, verdict: str) -> None:
    assert judge_side(Estimate((low + high) / 2, low, high, 10), side) == verdict


def test_nothing_is_tested_with_one_seed() -> None:
    one = Estimate(30.0, 30.0, 30.0, 1)
    assert judge(one, 15.0) == judge_equal(one) == judge(None, 15.0) == judge_equal(None) == "not testable"
    assert judge_side(one, 1) == judge_side(None, 1) == "not testable"


def test_words() -> None:
    estimate = Estimate(1234.56, 1230.56, 1238.56, 10)
    assert words(estimate, "%") == "+1,234.6 ± 4.0 %, n = 10"
    assert words(estimate, "") == "+1,234.6 ± 4.0, n = 10"
    assert words(Estimate(0.5, 0.5, 0.5, 1), "points", 2, signed=False) == "0.50 points, n = 1"
    assert words(None, "%") == "no data"
