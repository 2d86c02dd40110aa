"""`hog`: histograms of oriented gradients (Dalal and Triggs, CVPR 2005), in the variant that is described here.

Every pixel votes for the direction in which its brightness changes most (all of 360 degrees, shared by the two nearest
of 8 directions), with the strength of the change; of several channels the one that changes most votes. Votes are
averaged over a grid of cells; each 2 x 2 neighbouring cells are divided by their common length, with large entries cut.
The mean of each channel in each cell, squashed by tanh, is added: colour, or how much ink there is. Edges and means are
about equally long, and the whole has length 1, so that a sample's gradient of a softmax model is at most 2 long.
`hog_fine` adds the edges of a second, finer grid: more accurate where little or no noise is added, and about six times
the features.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from covey.data.transforms.protocol import image_shape
from covey.data.types import Features
from covey.errors import DataError
from covey.scenario.schema import Data

DIRECTIONS = 8
#: Cells along each side of an image, in the coarse and in the fine grid.
CELLS, FINE = 4, 8
#: Largest entry of a block, and what is added to lengths so that empty blocks stay empty.
LARGEST, SMALL = 0.3, 1e-2


def hog(x: Features, data: Data) -> Features:
    """(n, (CELLS - 1)^2 x 4 x DIRECTIONS + CELLS^2 x channels) features of images x (n, channels, height, width)."""
    return _described("hog", x, (CELLS,))


def hog_fine(x: Features, data: Data) -> Features:
    """The same with (FINE - 1)^2 x 4 x DIRECTIONS features of the finer grid after those of the coarse one."""
    return _described("hog_fine", x, (CELLS, FINE))


def _described(name: str, x: Features, grids: tuple[int, ...]) -> Features:
    """Features (n, F) of images x (n, C, H, W): edges in all of these grids, and means in the first."""
    _, _, height, width = image_shape(name, x)
    most = max(grids)
    if min(height, width) < most:
        raise DataError(
            f"data.transform '{name}' divides images into {most} x {most} cells, but these have {height} x {width}"
            " pixels; put it back with data.transform=none"
        )
    images = torch.from_numpy(np.array(x))
    votes = _votes(images)
    edges = _unit(torch.cat([_edges(votes, cells) for cells in grids], dim=1))
    means = functional.adaptive_avg_pool2d(images, grids[0]).tanh().flatten(1)
    return _unit(torch.cat([edges, means / math.sqrt(means.shape[1])], dim=1)).numpy()


def _edges(votes: Tensor, cells: int) -> Tensor:
    """(n, (cells - 1)^2 x 4 x DIRECTIONS), centred and of length 1, of votes (n, DIRECTIONS, H, W)."""
    grid = functional.adaptive_avg_pool2d(votes, cells)
    corners = [grid[:, :, i : i + cells - 1, j : j + cells - 1] for i in (0, 1) for j in (0, 1)]
    blocks = torch.stack(corners, dim=2).flatten(3)
    flat = _shortened(_shortened(blocks).clamp(max=LARGEST)).flatten(1)
    return _unit(flat - flat.mean(1, keepdim=True))


def _votes(x: Tensor) -> Tensor:
    """(n, DIRECTIONS, H, W) strength of each pixel's change of brightness, at its two nearest directions."""
    padded = functional.pad(x, (1, 1, 1, 1), mode="replicate")
    across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    across, down = _of_strongest(across, down)
    strength = (across.square() + down.square()).sqrt()
    place = (torch.atan2(down, across) % math.tau) * (DIRECTIONS / math.tau)
    lower = place.floor()
    share, first = place - lower, lower.long() % DIRECTIONS
    votes = torch.zeros(len(x), DIRECTIONS, *x.shape[2:])
    votes.scatter_add_(1, first, strength * (1.0 - share))
    return votes.scatter_add_(1, (first + 1) % DIRECTIONS, strength * share)


def _of_strongest(across: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
    """Changes (n, 1, H, W) of the channel that changes most at each pixel, of all channels (n, C, H, W)."""
    chosen = across[:, :1], down[:, :1]
    most = chosen[0].square() + chosen[1].square()
    for channel in range(1, across.shape[1]):  # much faster than argmax over a short axis
        here = across[:, channel : channel + 1], down[:, channel : channel + 1]
        strength = here[0].square() + here[1].square()
        more = strength > most
        chosen = torch.where(more, here[0], chosen[0]), torch.where(more, here[1], chosen[1])
        most = torch.maximum(most, strength)
    return chosen


def _shortened(blocks: Tensor) -> Tensor:
    """Blocks (n, DIRECTIONS, 4, blocks) divided by their lengths."""
    lengths: Tensor = torch.linalg.vector_norm(blocks, dim=(1, 2), keepdim=True)
    return blocks / (lengths + SMALL)


def _unit(rows: Tensor) -> Tensor:
    """Rows divided by their lengths; rows of zeros stay."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / (lengths + 1e-6)
