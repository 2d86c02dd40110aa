"""Sums of clipped per-sample gradients at about the cost of one plain backward pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from covey.federated.models import count_weights
from covey.federated.strategies import GradientStrategy, strategy_for, with_strategy

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ClippedSum:
    """Result of `clipped_gradient_sum`.

    `total` (D,) float64 is the sum of the clipped gradients in the order of `module.parameters()`;
    `norms` (n,) float64 and `losses` (n,) are those of each sample before clipping; `rejected`
    counts the samples whose gradient was not finite and which are therefore not in `total`.
    """

    total: Tensor
    norms: Tensor
    losses: Tensor
    rejected: int


def clipped_gradient_sum(
    module: nn.Module, x: Tensor, y: Tensor, clip: float, *, chunk: int | None = None
) -> ClippedSum:
    """Sum over samples of the gradient of the loss, each scaled down to a norm of at most `clip`.

    `x` is (n, *shape) and `y` (n,); an infinite `clip` gives the plain gradient of the summed loss.
    No sample contributes more than `clip` to the sum: a safety margin on the norms exceeds their rounding
    error. Samples with a non-finite gradient count as 0, so that one of them cannot reveal itself by
    turning the sum into NaN. `chunk` is the number of samples per pass (chosen when None).

    Modules made of `Linear`, `Conv2d` (without groups) and layers without parameters cost about as
    much as a plain backward pass. Any other module is differentiated sample by sample, several times
    slower. The gradient strategy is chosen by a trial on the first samples, or by `use_strategy`.
    """
    if not clip > 0:
        raise ValueError(f"clip is {clip}, but a clipping norm must be above 0; use math.inf for no clipping")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is {chunk}, but a chunk holds at least 1 sample")
    if len(x) == 0:
        none = torch.zeros(0, dtype=torch.float64)
        return ClippedSum(none.new_zeros(count_weights(module)), none, none, 0)
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    return with_strategy(module, x, y, lambda strategy: _clipped_sum(strategy, x, y, clip, chunk))


def _clipped_sum(strategy: GradientStrategy, x: Tensor, y: Tensor, clip: float, chunk: int | None) -> ClippedSum:
    total = torch.zeros(strategy.weights, dtype=torch.float64)
    unit = clipping_unit(clip)
    # As few chunks as possible, all of about the same length.
    length = -(-len(x) // -(-len(x) // (chunk or strategy.chunk)))
    norms, losses, rejected = [], [], 0
    with strategy, np.errstate(divide="ignore", invalid="ignore"):
        for part_x, part_y in zip(torch.split(x, length), torch.split(y, length), strict=True):
            squares, part_losses = strategy.run(part_x, part_y)
            part_norms = np.sqrt(squares)
            factors = clipping_factors(part_norms, clip, x.dtype)
            bad = None
            if not np.isfinite(squares).all():
                bad = ~np.isfinite(squares)
                factors[bad] = 0.0
                rejected += int(bad.sum())
            strategy.add(torch.from_numpy(factors).to(x.dtype), bad, total)
            norms.append(part_norms)
            losses.append(part_losses)
        strategy.finish(total)
    if unit != 1.0:
        total.mul_(unit)
    return ClippedSum(total, torch.from_numpy(np.concatenate(norms)), torch.cat(losses), rejected)


def clipping_unit(clip: float) -> float:
    """What sums with `clipping_factors` are multiplied by, in float64: small clipping norms would underflow before."""
    return min(clip, 1.0)


def clipping_factors(norms: Floats, clip: float, dtype: torch.dtype) -> Floats:
    """(n,) factors that scale gradients of these `norms` (n,), computed in `dtype`, down to clip / `clipping_unit`."""
    unit, margin = clipping_unit(clip), 1 + 16 * torch.finfo(dtype).eps
    return np.asarray(np.minimum(clip / unit / margin / norms, min(1 / unit, 1e30)))


def group_gradients(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient (n, D) of the mean loss of each of n groups of r samples, and all losses (n, r).

    `x` is (n, r, *shape) and `y` (n, r). All groups go through the module as one batch, which is faster
    for modules so small that call overhead dominates.
    """
    flat_x, flat_y = x.flatten(0, 1), y.flatten()

    def rows_of(strategy: GradientStrategy) -> tuple[Tensor, Tensor]:
        with strategy:
            return strategy.group_rows(flat_x, flat_y, y.shape[1])

    rows, losses = with_strategy(module, flat_x, flat_y, rows_of)
    return rows, losses.view_as(y)


def chunk_length(module: nn.Module, x: Tensor, y: Tensor) -> int:
    """Number of samples like `x` and `y` per chunk: few for large modules, many for small ones."""
    return strategy_for(module, x, y).chunk
