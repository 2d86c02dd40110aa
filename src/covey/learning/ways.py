"""Ways to get the gradient norms of samples first and weighted sums of their gradients afterwards.

`way_for` finds the way that suits a module by trying it against plain differentiation: `Tapped` for
modules of linear and convolutional layers, `OneByOne` for all others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from covey.learning.models import count_weights
from covey.learning.per_sample import looped_gradients, mapped_gradients
from covey.learning.placing import place_taps
from covey.learning.pooled import PooledTap
from covey.learning.taps import Unsupported, row_squares

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: Elements of a chunk's layer inputs and outputs: few enough for the cache, many enough to be worth a call.
_CHUNK_ELEMENTS = 1 << 22
_LARGEST_CHUNK = 4096
#: Elements of the per-sample gradients that the slow way holds at once.
_ROW_ELEMENTS = 1 << 24
#: Relative difference up to which two ways of computing gradients are taken to agree.
_AGREEMENT = 1e-2


class Way:
    """One way to treat one module; `chunk` samples at once are best. Use it in a `with` block."""

    def __init__(self, module: nn.Module, chunk: int) -> None:
        # Weak, because the module's entry among the known ways holds this object.
        self._module = weakref.ref(module)
        self.chunk = chunk

    @property
    def module(self) -> nn.Module:
        """The module, which its user keeps alive."""
        module = self._module()
        assert module is not None
        return module

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let go of everything."""

    def run(self, x: Tensor, y: Tensor) -> tuple[Floats, Tensor]:
        """Squared gradient norms (n,) and losses (n,) of a chunk."""
        raise NotImplementedError

    def add(self, factors: Tensor, rejected: Flags | None, total: Tensor) -> None:
        """Add the chunk's gradients times `factors` (n,) to `total` (D,), leaving out `rejected` samples (n,)."""
        raise NotImplementedError

    def finish(self, total: Tensor) -> None:
        """Add whatever `add` put off."""

    def group_rows(self, x: Tensor, y: Tensor, group: int) -> tuple[Tensor, Tensor]:
        """Gradients of the mean loss of every `group` samples in a row, (n / group, D), and losses (n,)."""
        raise NotImplementedError

    def outputs(self, x: Tensor) -> Tensor:
        """What the module returns for samples `x`, when no gradients are wanted."""
        outputs: Tensor = self.module(x)
        return outputs


class Tapped(Way):
    """All layers have taps: one forward and one backward pass. Raises `Unsupported` where that fails."""

    def __init__(self, module: nn.Module, *, pooled: bool = True) -> None:
        super().__init__(module, 1)
        self.parameters = list(module.parameters())
        self.taps = place_taps(module, pooled=pooled)

    def __enter__(self) -> Self:
        for tap in self.taps:
            for layer, forward in tap.forwards():
                layer.forward = forward
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Give the layers back their own forward pass."""
        for tap in self.taps:
            for layer, _ in tap.forwards():
                del layer.forward
            tap.forget()

    def run(self, x: Tensor, y: Tensor) -> tuple[Floats, Tensor]:
        """Squared gradient norms (n,) and losses (n,) of a chunk."""
        losses = self._differentiate(x, y, group=0)
        return np.sum([tap.squares for tap in self.taps], axis=0), losses

    def add(self, factors: Tensor, rejected: Flags | None, total: Tensor) -> None:
        """Add the chunk's gradients times `factors` (n,) to `total` (D,), leaving out `rejected` samples (n,)."""
        for tap in self.taps:
            tap.add(factors, rejected, total)

    def finish(self, total: Tensor) -> None:
        """Add what the taps kept."""
        for tap in self.taps:
            tap.finish(total)

    def group_rows(self, x: Tensor, y: Tensor, group: int) -> tuple[Tensor, Tensor]:
        """Gradients of the mean loss of every `group` samples in a row, (n / group, D), and losses (n,)."""
        losses = self._differentiate(x, y, group)
        rows = x.new_zeros(len(x) // group, sum(p.numel() for p in self.parameters))
        for tap in self.taps:
            tap.write_rows(rows)
        return rows.div_(group), losses

    def outputs(self, x: Tensor) -> Tensor:
        """What the module returns for samples `x`, by the taps where they are quicker than the layers."""
        if not any(isinstance(tap, PooledTap) for tap in self.taps):
            return super().outputs(x)
        for tap in self.taps:
            tap.expect(len(x))
        with self:
            return super().outputs(x)

    def agrees(self, x: Tensor, y: Tensor, truth: Tensor) -> bool:
        """Whether norms and a weighted sum of gradients match `truth` (n, D)."""
        weights = torch.linspace(1.0, 2.0, len(x), dtype=x.dtype)
        total = torch.zeros(truth.shape[1], dtype=torch.float64)
        with self:
            squares, _ = self.run(x, y)
            self.add(weights, None, total)
            self.finish(total)
        return _close(total, weights @ truth) and _close(
            torch.from_numpy(squares), torch.from_numpy(row_squares(truth))
        )

    def choose_chunk(self) -> None:
        """Set `chunk` from the sizes that the taps saw in the last pass."""
        elements = max(1, sum(tap.elements for tap in self.taps))
        self.chunk = max(8, min(_LARGEST_CHUNK, _CHUNK_ELEMENTS // elements))

    def _differentiate(self, x: Tensor, y: Tensor, group: int) -> Tensor:
        for tap in self.taps:
            tap.expect(len(x), group)
        with torch.enable_grad():
            losses = functional.cross_entropy(self.module(x), y, reduction="none")
            # Taps take their gradients and pass none on: one that arrives came by another way.
            found = torch.autograd.grad(losses.sum(), self.parameters, allow_unused=True)
        if any(gradient is not None for gradient in found):
            raise Unsupported
        return losses.detach()


class OneByOne(Way):
    """Every sample's gradient is formed in full, by `gradients(module, x, y) -> rows (n, D), losses (n,)`."""

    def __init__(
        self, module: nn.Module, gradients: Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]]
    ) -> None:
        super().__init__(module, max(1, min(256, _ROW_ELEMENTS // count_weights(module))))
        self.gradients = gradients
        self.rows = torch.empty(0)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let go of the gradients."""
        self.rows = torch.empty(0)

    def run(self, x: Tensor, y: Tensor) -> tuple[Floats, Tensor]:
        """Squared gradient norms (n,) and losses (n,) of a chunk."""
        self.rows, losses = self.gradients(self.module, x, y)
        return row_squares(self.rows), losses

    def add(self, factors: Tensor, rejected: Flags | None, total: Tensor) -> None:
        """Add the chunk's gradients times `factors` (n,) to `total` (D,), leaving out `rejected` samples (n,)."""
        if rejected is not None:
            self.rows[torch.from_numpy(rejected)] = 0.0
        total += factors @ self.rows

    def group_rows(self, x: Tensor, y: Tensor, group: int) -> tuple[Tensor, Tensor]:
        """Gradients of the mean loss of every `group` samples in a row, (n / group, D), and losses (n,)."""
        rows, losses = self.gradients(self.module, x, y)
        return rows.view(-1, group, rows.shape[1]).mean(1), losses


_known: weakref.WeakKeyDictionary[nn.Module, tuple[tuple[object, ...], Way]] = weakref.WeakKeyDictionary()


def way_for(module: nn.Module, x: Tensor, y: Tensor, *, tapped: bool = True) -> Way:
    """The way that suits the module and its samples, remembered until its parameters are replaced.

    With `tapped` false taps are out of the question, now and later: they failed on some samples.
    """
    key = (x.shape[1:], x.dtype, module.training, *(id(p) for p in module.parameters()))
    known = _known.get(module)
    if tapped and known is not None and known[0] == key:
        return known[1]
    # Three samples that differ, even if there is only one, and are finite.
    some_x, some_y = x[:3].nan_to_num(0.0, 0.0, 0.0), y[:3]
    some_x, some_y = torch.cat([some_x, some_x / 2, some_x / 4])[:3], some_y.repeat(3)[:3]
    # One at a time: a module that mixes samples cannot agree with this.
    truth, _ = looped_gradients(module, some_x, some_y)
    way = (_tapped(module, some_x, some_y, truth) if tapped else None) or _one_by_one(module, some_x, some_y, truth)
    # Where all gradients are 0 or not finite, nothing was compared.
    if not tapped or (torch.isfinite(truth).all() and truth.any()):
        _known[module] = key, way
    return way


def outputs_of(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """What the module returns for samples `x` of classes `y`, without gradients, by the quickest way."""
    try:
        return way_for(module, x, y).outputs(x)
    except Unsupported:
        return way_for(module, x, y, tapped=False).outputs(x)


def _tapped(module: nn.Module, x: Tensor, y: Tensor, truth: Tensor) -> Way | None:
    # Layers in one go fail where the module looks between them.
    for pooled in (True, False):
        try:
            way = Tapped(module, pooled=pooled)
            if way.agrees(x, y, truth):
                way.choose_chunk()
                return way
        except Unsupported:
            pass
    return None


def _one_by_one(module: nn.Module, x: Tensor, y: Tensor, truth: Tensor) -> Way:
    try:
        if _close(mapped_gradients(module, x, y)[0], truth):
            return OneByOne(module, mapped_gradients)
    except Exception:
        pass  # the module does something that cannot be mapped over samples
    return OneByOne(module, looped_gradients)


def _close(found: Tensor, truth: Tensor) -> bool:
    difference = torch.linalg.vector_norm(found.double() - truth.double())
    return not difference > _AGREEMENT * torch.linalg.vector_norm(truth.double())
