from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from covey.allocation.kernels import assign, paths_of


def columns_of(cost: np.ndarray) -> np.ndarray:
    """The column of every row, at most as many rows as columns."""
    paths = paths_of(cost.shape[1])
    assign(cost, *cost.shape, paths)
    columns = paths.column_of[: len(cost)].copy()
    assert len(set(columns.tolist())) == len(cost)
    expected = np.full(cost.shape[1], -1)
    expected[columns] = np.arange(len(cost))
    np.testing.assert_array_equal(paths.row_of[: cost.shape[1]], expected)
    return columns


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (4, 4), (3, 7), (8, 60), (20, 20)])
def test_the_assignment_is_that_of_scipy(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[1])
    for _ in range(100):
        cost = rng.normal(size=shape) * 10.0 ** rng.integers(-12, 12)
        rows, columns = linear_sum_assignment(cost)
        found = columns_of(cost)
        assert cost[rows, found].sum() == pytest.approx(cost[rows, columns].sum(), rel=1e-12)
        np.testing.assert_array_equal(found, columns)


@pytest.mark.parametrize("shape", [(2, 2), (4, 4), (3, 5), (6, 9)])
@pytest.mark.parametrize("levels", [1, 2, 4])
def test_ties_are_broken_as_by_scipy(shape: tuple[int, int], levels: int) -> None:
    rng = np.random.default_rng(levels)
    for _ in range(200):
        cost = -rng.integers(0, levels, shape).astype(float)
        np.testing.assert_array_equal(columns_of(cost), linear_sum_assignment(cost)[1])


def test_equal_costs_give_the_identity() -> None:
    np.testing.assert_array_equal(columns_of(np.full((5, 8), 3.0)), np.arange(5))


def test_only_the_named_rows_and_columns_count() -> None:
    cost = np.full((4, 5), -100.0)
    cost[:2, :3] = [[1.0, 2.0, 3.0], [1.0, 5.0, 9.0]]
    paths = paths_of(5)
    assign(cost, 2, 3, paths)
    assert paths.column_of[:2].tolist() == [1, 0]


def test_no_rows() -> None:
    assert columns_of(np.empty((0, 3))).size == 0
