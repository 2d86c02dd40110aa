from __future__ import annotations

import numpy as np
import pytest

from covey.evaluation import interquartile_mean, mean_interval, rank_correlation


def test_the_mean_interval_is_students() -> None:
    estimate = mean_interval(np.array([1.0, 2.0, 3.0, 4.0]))
    assert estimate.value == 2.5
    # t(0.975, 3) = 3.1824, standard error 0.6455
    assert estimate.half_width == pytest.approx(3.182446 * np.std([1, 2, 3, 4], ddof=1) / 2.0)
    assert mean_interval(np.array([7.0])).low == 7.0


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = {"mean": 0, "iqm": 0}
    for trial in range(200):
        values = rng.normal(5.0, 2.0, 25)
        for name, estimate in (("mean", mean_interval(values)), ("iqm", interquartile_mean(values, seed=trial))):
            hits[name] += estimate.low <= 5.0 <= estimate.high
    assert 180 <= hits["mean"] <= 199
    assert 172 <= hits["iqm"] <= 199


def test_the_interquartile_mean_ignores_outliers() -> None:
    values = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1000.0])
    assert interquartile_mean(values).value == 1.0
    table = np.tile(np.arange(8.0), (3, 1))
    assert interquartile_mean(table).n == 24
    assert interquartile_mean(table).value == pytest.approx(3.5)


def test_rank_correlation_is_one_for_equal_orders() -> None:
    assert rank_correlation(np.array([1.0, 2.0, 5.0]), np.array([10.0, 11.0, 12.0])) == 1.0
    assert rank_correlation(np.array([1.0, 2.0, 5.0]), np.array([3.0, 2.0, 1.0])) == -1.0
