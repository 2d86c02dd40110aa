"""Turning images: what the partitions `rotation` and `writer` make groups differ by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from covey.data.types import Features, Labels
from covey.scenario.schema import Scenario

#: A quarter turn per group leaves four that differ.
QUARTER_TURNS = 4


def turns_of_groups(scenario: Scenario) -> tuple[float, ...]:
    """(G,) degrees, counter-clockwise, by which each group's images are turned: `data.rotations`, or 90 x group."""
    given = scenario.data.rotations
    return tuple(90.0 * group for group in range(scenario.groups)) if given is None else given


def turn_images(x: Features, groups: Labels, turns: Sequence[float], empty: NDArray[np.float32]) -> None:
    """Turn square images in place; x: (N, C, S, S), groups: (N,) of each image, turns: (G,) degrees, empty: (C,) what
    stands where a turned image has no pixel."""
    for group, degrees in enumerate(turns):
        rows = np.flatnonzero(groups == group)
        if len(rows) and degrees % 360:
            x[rows] = turned(x[rows], degrees, empty)


def turned(images: Features, degrees: float, empty: NDArray[np.float32]) -> Features:
    """Images (n, C, S, S) turned counter-clockwise about their centre; exact for multiples of 90 degrees.

    Other angles take the nearest pixel of the image, and `empty` (C,) where that is outside of it.
    """
    quarters, rest = divmod(degrees, 90)
    if rest == 0:
        return np.rot90(images, int(quarters) % QUARTER_TURNS, axes=(2, 3))
    side = images.shape[2]
    row, column = _origins(side, degrees)
    inside = (row >= 0) & (row < side) & (column >= 0) & (column < side)
    found: Features = images[:, :, np.clip(row, 0, side - 1), np.clip(column, 0, side - 1)]
    return np.where(inside, found, empty[None, :, None, None])


def _origins(side: int, degrees: float) -> tuple[Labels, Labels]:
    """Row and column, (S, S) each, of the pixel that comes to stand at each place."""
    angle, centre = np.deg2rad(degrees), (side - 1) / 2
    down, right = np.meshgrid(np.arange(side) - centre, np.arange(side) - centre, indexing="ij")
    # Rows count downwards, so that turning back is this matrix.
    row = np.cos(angle) * down + np.sin(angle) * right + centre
    column = -np.sin(angle) * down + np.cos(angle) * right + centre
    # Sines of exact angles are off by 1e-16: halves are rounded the same way on every machine.
    return _nearest(row), _nearest(column)


def _nearest(values: NDArray[np.float64]) -> Labels:
    return np.floor(np.round(values, 9) + 0.5).astype(np.int64)
