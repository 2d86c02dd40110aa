"""Sums of clipped per-sample gradients at about the cost of one plain backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from covey.learning.per_sample import looped_gradients, mapped_gradients
from covey.learning.taps import Unsupported, place_taps, row_squares

#: Elements of a chunk's layer inputs, outputs and formed gradients: small enough for the cache.
_CHUNK_ELEMENTS = 1 << 21
#: Elements of the per-sample gradients that the slow way holds at once.
_SLOW_ELEMENTS = 1 << 24
#: Relative difference up to which two ways of computing gradients are taken to agree.
_AGREEMENT = 1e-2


@dataclass(frozen=True)
class ClippedSum:
    """What `clipped_gradient_sum` found.

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
    """Sum over samples of the cross-entropy gradient, each scaled down to a norm of at most `clip`.

    `x` is (n, *shape) and `y` (n,); an infinite `clip` gives the plain gradient of the summed loss.
    No sample's share of the sum exceeds `clip`: norms are worked out more closely than the margin
    that is taken off them. Samples whose gradient is not finite count as 0, so that one of them
    cannot show itself by spoiling the sum. `chunk` samples are treated at once (chosen when None).

    Modules made of `Linear`, `Conv2d` (without groups) and layers without parameters cost about as
    much as a plain backward pass. Any other module is differentiated sample by sample, several times
    slower. Which way is right for a module is found by trying it on the first samples.
    """
    if not clip > 0:
        raise ValueError(f"clip is {clip}, but a clipping norm must be above 0; use math.inf for no clipping")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is {chunk}, but a chunk holds at least 1 sample")
    total = torch.zeros(sum(p.numel() for p in module.parameters()), dtype=torch.float64)
    if len(x) == 0:
        return ClippedSum(total, total.new_zeros(0), total.new_zeros(0), 0)
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    # Small clipping norms are multiplied in float64 at the end, where nothing underflows.
    unit = min(clip, 1.0)
    margin = 1 + 16 * torch.finfo(x.dtype).eps
    norms, losses, rejected = [], [], 0
    with _way_for(module, x, y) as way, np.errstate(divide="ignore", invalid="ignore"):
        for part_x, part_y in zip(x.split(chunk or way.chunk), y.split(chunk or way.chunk), strict=True):
            squares, part_losses = way.run(part_x, part_y)
            part_norms = np.sqrt(squares)
            factors = np.minimum(clip / unit / margin / part_norms, min(1 / unit, 1e30))
            bad = None
            if not np.isfinite(squares).all():
                bad = ~np.isfinite(squares)
                factors[bad] = 0.0
                rejected += int(bad.sum())
            way.add(torch.from_numpy(factors).to(x.dtype), bad, total)
            norms.append(part_norms)
            losses.append(part_losses)
        way.finish(total)
    return ClippedSum(total.mul_(unit), torch.from_numpy(np.concatenate(norms)), torch.cat(losses), rejected)


class _Way(Protocol):
    """One way to get norms first and the weighted sum of gradients afterwards."""

    chunk: int

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None: ...
    def run(self, x: Tensor, y: Tensor) -> tuple[npt.NDArray[np.float64], Tensor]: ...
    def add(self, factors: Tensor, rejected: npt.NDArray[np.bool_] | None, total: Tensor) -> None: ...
    def finish(self, total: Tensor) -> None: ...


class _Tapped:
    """All layers have taps: one forward and one backward pass."""

    def __init__(self, module: nn.Module) -> None:
        # The module owns the cache entry that holds this object, so it is not held from here.
        self.module = weakref.proxy(module)
        self.parameters = list(module.parameters())
        self.taps = place_taps(module)
        self.chunk = 1

    def __enter__(self) -> Self:
        for tap in self.taps:
            tap.layer.forward = tap.forward  # type: ignore[method-assign]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for tap in self.taps:
            del tap.layer.forward
            tap.forget()

    def run(self, x: Tensor, y: Tensor) -> tuple[npt.NDArray[np.float64], Tensor]:
        """Squared gradient norms (n,) and losses (n,)."""
        for tap in self.taps:
            tap.expect(len(x))
        with torch.enable_grad():
            losses = functional.cross_entropy(self.module(x), y, reduction="none")
            # Taps take their gradients and pass none on: one that arrives came by another way.
            found = torch.autograd.grad(losses, self.parameters, torch.ones_like(losses), allow_unused=True)
        if any(g is not None for g in found) or any(tap.calls != 1 for tap in self.taps):
            raise Unsupported
        return np.sum([tap.squares for tap in self.taps], axis=0), losses.detach()

    def add(self, factors: Tensor, rejected: npt.NDArray[np.bool_] | None, total: Tensor) -> None:
        """Add the last chunk's gradients times `factors` to `total`."""
        for tap in self.taps:
            tap.add(factors, rejected, total)

    def finish(self, total: Tensor) -> None:
        """Add what the taps kept."""
        for tap in self.taps:
            tap.finish(total)

    def agrees(self, x: Tensor, y: Tensor, truth: Tensor) -> bool:
        """Whether norms and a weighted sum of gradients match `truth` (n, D)."""
        weights = torch.linspace(1.0, 2.0, len(x), dtype=x.dtype)
        total = torch.zeros(truth.shape[1], dtype=torch.float64)
        with self:
            squares, _ = self.run(x, y)
            self.add(weights, None, total)
            self.finish(total)
        return _close(total, weights @ truth) and _close(torch.from_numpy(squares), torch.from_numpy(row_squares(truth)))


class _OneByOne:
    """Every sample's gradient is formed in full."""

    def __init__(self, module: nn.Module, gradients: Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        self.module = weakref.proxy(module)
        self.gradients = gradients
        self.rows = torch.empty(0)
        self.chunk = max(1, min(256, _SLOW_ELEMENTS // sum(p.numel() for p in module.parameters())))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.rows = torch.empty(0)

    def run(self, x: Tensor, y: Tensor) -> tuple[npt.NDArray[np.float64], Tensor]:
        """Squared gradient norms (n,) and losses (n,)."""
        self.rows, losses = self.gradients(self.module, x, y)
        return row_squares(self.rows), losses

    def add(self, factors: Tensor, rejected: npt.NDArray[np.bool_] | None, total: Tensor) -> None:
        """Add the last chunk's gradients times `factors` to `total`."""
        if rejected is not None:
            self.rows[torch.from_numpy(rejected)] = 0.0
        total += factors @ self.rows

    def finish(self, total: Tensor) -> None:
        """Nothing was kept."""


_ways: weakref.WeakKeyDictionary[nn.Module, tuple[tuple[object, ...], _Way]] = weakref.WeakKeyDictionary()


def _way_for(module: nn.Module, x: Tensor, y: Tensor) -> _Way:
    """The way that suits the module and its samples, remembered until its parameters are replaced."""
    key = (x.shape[1:], x.dtype, module.training, *(id(p) for p in module.parameters()))
    known = _ways.get(module)
    if known is not None and known[0] == key:
        return known[1]
    # Three samples that differ, even if there is only one, and are finite.
    some_x, some_y = x[:3].nan_to_num(0.0, 0.0, 0.0), y[:3]
    some_x, some_y = torch.cat([some_x, some_x / 2, some_x / 4])[:3], some_y.repeat(3)[:3]
    # One at a time: a module that mixes samples cannot agree with this.
    truth, _ = looped_gradients(module, some_x, some_y)
    way = _choose_way(module, some_x, some_y, truth)
    if torch.isfinite(truth).all() and truth.any():
        _ways[module] = key, way
    return way


def _choose_way(module: nn.Module, x: Tensor, y: Tensor, truth: Tensor) -> _Way:
    try:
        tapped = _Tapped(module)
        if tapped.agrees(x, y, truth):
            tapped.chunk = max(8, min(1024, _CHUNK_ELEMENTS // max(1, sum(tap.elements for tap in tapped.taps))))
            return tapped
    except Unsupported:
        pass
    try:
        if _close(mapped_gradients(module, x, y)[0], truth):
            return _OneByOne(module, mapped_gradients)
    except RuntimeError:
        pass  # the module does something that cannot be mapped over samples
    return _OneByOne(module, looped_gradients)


def _close(found: Tensor, truth: Tensor) -> bool:
    difference = torch.linalg.vector_norm(found.double() - truth.double())
    return not difference > _AGREEMENT * torch.linalg.vector_norm(truth.double())
