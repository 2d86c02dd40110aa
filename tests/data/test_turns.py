from __future__ import annotations

import numpy as np
import pytest

from covey.data.turns import turn_images, turned

EMPTY = np.array([-1.0, -2.0], np.float32)


def images(side: int) -> np.ndarray:
    return np.random.default_rng(side).normal(size=(3, 2, side, side)).astype(np.float32)


@pytest.mark.parametrize("side", [1, 4, 5])
@pytest.mark.parametrize("quarters", [-3, 0, 1, 2, 3, 5])
def test_quarter_turns_are_exact(side: int, quarters: int) -> None:
    x = images(side)
    np.testing.assert_array_equal(turned(x, 90.0 * quarters, EMPTY), np.rot90(x, quarters, axes=(2, 3)))


@pytest.mark.parametrize("side", [4, 5, 28])
def test_the_nearest_pixel_is_taken_and_corners_are_empty(side: int) -> None:
    x = images(side)
    for degrees in (15.0, 45.0, 200.5):
        found = turned(x, degrees, EMPTY)
        assert found.dtype == np.float32
        for channel, empty in enumerate(EMPTY):
            assert np.isin(found[:, channel], [*x[:, channel].ravel(), empty]).all()
    assert (turned(x, 45.0, EMPTY)[:, :, 0, 0] == EMPTY).all()
    if side % 2:
        middle = side // 2
        np.testing.assert_array_equal(turned(x, 77.0, EMPTY)[:, :, middle, middle], x[:, :, middle, middle])


def test_almost_a_quarter_turn_is_a_quarter_turn_of_small_images() -> None:
    x = images(8)
    np.testing.assert_array_equal(turned(x, 90.0 + 1e-4, EMPTY), np.rot90(x, 1, axes=(2, 3)))
    np.testing.assert_array_equal(turned(turned(x, 1e-4, EMPTY), 270.0 - 1e-4, EMPTY), np.rot90(x, 3, axes=(2, 3)))


def test_each_image_turns_by_the_angle_of_its_group() -> None:
    x = images(5)
    found = x.copy()
    turn_images(found, np.array([1, 0, 1]), (0.0, 30.0), EMPTY)
    np.testing.assert_array_equal(found[1], x[1])
    np.testing.assert_array_equal(found[[0, 2]], turned(x[[0, 2]], 30.0, EMPTY))
