"""Label placement with minimal overlap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


class LabelPlacer:
    """Greedy label placement: each label takes the candidate position with the least overlap.

    Coordinates are in points (1/72 inch) from the lower left corner of a `width` x `height` field.
    """

    def __init__(self, width: float, height: float) -> None:
        self._field = np.array([0.0, 0.0, width, height])
        self._boxes: list[Points] = []
        self._weights: list[float] = []

    def occupy(self, centre: Points, size: tuple[float, float], weight: float = 1.0) -> None:
        """Mark a box (centre, width and height) as occupied; overlap costs are multiplied by `weight`."""
        self._boxes.append(_box(centre, size))
        self._weights.append(weight)

    def occupy_line(self, start: Points, end: Points, weight: float = 0.6) -> None:
        """Mark a thin line as occupied."""
        steps = max(2, int(np.linalg.norm(end - start) / 6.0))
        for share in np.linspace(0.0, 1.0, steps):
            self.occupy(start + share * (end - start), (4.0, 4.0), weight)

    def place(self, candidates: Points, size: tuple[float, float], reluctance: Points | None = None) -> Points:
        """The best of `candidates` (n, 2), centres in order of preference; it is marked as occupied.

        `reluctance` (n,) is added to each candidate's cost, the covered share of its area.
        """
        extra = 0.01 * np.arange(len(candidates)) if reluctance is None else reluctance
        costs = [self._cost(_box(centre, size)) + more for centre, more in zip(candidates, extra, strict=True)]
        best: Points = candidates[int(np.argmin(costs))]
        self.occupy(best, size, 2.0)
        return best

    def _cost(self, box: Points) -> float:
        area = (box[2] - box[0]) * (box[3] - box[1])
        outside = 1.0 - _overlap(box, self._field[None])[0] / area
        if not self._boxes:
            return 5.0 * float(outside)
        covered = _overlap(box, np.array(self._boxes)) @ np.array(self._weights)
        return 5.0 * float(outside) + float(covered) / float(area)


def text_size(text: str, points: float) -> tuple[float, float]:
    """Approximate width and height in points of a text in the font of the plots."""
    lines = text.split("\n")
    return 0.62 * points * max(len(line) for line in lines) + 2.0, 1.22 * points * len(lines)


def around(centre: Points, size: tuple[float, float], gap: float) -> Points:
    """(8, 2) centres for a label of `size` on all sides of a point, right and above first."""
    angles = np.deg2rad([0, 90, 180, 270, 45, 135, 315, 225])
    reach = np.column_stack([np.cos(angles) * (gap + size[0] / 2), np.sin(angles) * (gap + size[1] / 2)])
    return np.asarray(centre + reach)


def _box(centre: Points, size: tuple[float, float]) -> Points:
    half = np.array(size) / 2.0
    return np.concatenate([centre - half, centre + half])


def _overlap(box: Points, others: Points) -> Points:
    width = np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0])
    height = np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1])
    return np.asarray(np.clip(width, 0.0, None) * np.clip(height, 0.0, None))
