"""Per-sample gradients layer by layer, without ever materialising those of the whole model.

A hook replaces the forward pass of one `Linear` or `Conv2d` layer. In the backward pass it receives the
layer's inputs and output gradients, computes the layer's share of every sample's squared gradient
norm, and keeps just enough to sum the clipped gradients once the clipping factors are known.
Plain weight gradients are never computed, and neither is the input gradient of the first layer.

With T positions per sample (output pixels or tokens), d inputs and p outputs per position, inputs A
(T, d) and output gradients G (T, p), the gradient of a sample is the matrix G'A. The cheapest of three
algorithms is chosen from the shapes:

* T = 1: the norm is |A| |G|; A and G are kept, and one product over many chunks gives the sum.
* few positions and a large matrix: a ghost norm, from AA' and GG', both (T, T).
* else: the matrices of one chunk are materialised, at the cost of the plain weight gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from covey.federated.strategies import Unsupported

#: Squares summed in working precision before the sum continues in float64: rounding stays below 1e-6.
_SQUARES_PER_SUM = 128
#: Rows up to this length are summed in float64 directly, which is faster for them.
_SHORT_ROW = 4096
#: Cost of an element of a materialised gradient, in multiplications of a ghost norm.
_ELEMENT_COST = 2
#: Elements of the columns of samples whose gradients are materialised in one batch.
_COLUMN_ELEMENTS = 1 << 19
#: Elements that a layer with T = 1 keeps before it sums them.
_KEPT_ELEMENTS = 1 << 22


def row_squares(matrix: Tensor) -> npt.NDArray[np.float64]:
    """Sum of squares of each row, (n,), from `matrix` (n, m)."""
    head = matrix.shape[1] - matrix.shape[1] % _SQUARES_PER_SUM if matrix.shape[1] > _SHORT_ROW else 0
    squares: npt.NDArray[np.float64] = (
        torch.linalg.vector_norm(matrix[:, head:] if head else matrix, dim=1, dtype=torch.float64).numpy() ** 2
    )
    if head:
        parts = torch.linalg.vector_norm(matrix[:, :head].reshape(len(matrix), -1, _SQUARES_PER_SUM), dim=2)
        squares += np.square(parts.numpy(), dtype=np.float64).sum(1)
    return squares


class LayerHook:
    """One layer, its slice of the flat gradient, and the state of its last backward pass.

    `starts` gives the offset of each parameter (by id) in the flat gradient. Subclasses define how
    the layer turns its inputs into columns A and how a matrix G'A is laid out in the flat gradient.
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, starts: dict[int, int]) -> None:
        self.layer = layer
        self.weight = slice(starts[id(layer.weight)], starts[id(layer.weight)] + layer.weight.numel())
        self.bias: slice | None = None
        if layer.bias is not None:
            self.bias = slice(starts[id(layer.bias)], starts[id(layer.bias)] + layer.bias.numel())
        self.samples = self.group = self.calls = self.elements = 0
        self.squares = np.empty(0)
        self._formed: Tensor | None = None
        self._pair: tuple[Tensor, Tensor] | None = None
        self._bias_rows: Tensor | None = None
        self._kept: list[tuple[Tensor, Tensor]] = []
        self._kept_elements = 0

    def forwards(self) -> list[tuple[nn.Module, Callable[[Tensor], Tensor]]]:
        """The layers whose forward pass is replaced, and the replacements."""
        return [(self.layer, self.forward)]

    def expect(self, samples: int, group: int = 0) -> None:
        """Prepare for a pass of `samples` samples, treated one by one, or in groups of `group` consecutive ones."""
        self.samples, self.group, self.calls = samples, group, 0
        self.squares = np.zeros(samples)
        self._formed = self._pair = self._bias_rows = None

    def forget(self) -> None:
        """Drop all state, so that a failed pass leaves none behind."""
        self.expect(0)
        self._kept, self._kept_elements = [], 0

    def forward(self, inputs: Tensor) -> Tensor:
        """The layer's output; autograd's backward pass calls `see`."""
        self.calls += 1
        if self.calls > 1:
            raise Unsupported(f"the module calls a layer twice, {self.layer}")
        if inputs.shape[0] != self.samples:
            raise Unsupported(f"rows of the input of {self.layer} are not the samples")
        outputs: Tensor
        if torch.is_grad_enabled():
            outputs = _Watch.apply(inputs, self.layer.weight, self.layer.bias, self)  # type: ignore[no-untyped-call]
        else:  # whoever wants gradients calls `see`
            outputs = self.run(inputs)
        self.elements = (inputs.numel() + outputs.numel()) // self.samples
        return outputs

    def see(self, inputs: Tensor, gradients: Tensor) -> None:
        """Compute `squares` (n,) from the layer's `inputs` and the `gradients` of its outputs."""
        if self.group:
            columns, gradients = self.columns(inputs), self.positions_last(gradients)
            gradients = gradients.reshape(self.samples // self.group, -1, gradients.shape[2])
            self._formed = torch.bmm(gradients.transpose(1, 2), columns.reshape(len(gradients), -1, columns.shape[2]))
            self._bias_rows = gradients.sum(1)
            return
        if gradients.dim() == 2:
            self._pair = inputs, gradients
            # The bias adds |G|^2, as one more input that is always 1 would.
            self.squares = row_squares(gradients) * (row_squares(inputs) + (self.bias is not None))
            return
        gradients = self.positions_last(gradients)
        positions, width = gradients.shape[1:]
        depth = self.layer.weight[0].numel()
        if positions * positions * (depth + width) < _ELEMENT_COST * depth * width:
            self._pair = self.columns(inputs), gradients
            # Positions may cancel, which loses precision in float32: the bound needs float64.
            left, right = self._pair[0].double(), gradients.double()
            products = torch.bmm(left, left.transpose(1, 2)).mul_(torch.bmm(right, right.transpose(1, 2)))
            # The sum itself is computed in float32, where cancelling large terms leave a rounding error: it counts too.
            rests = positions * torch.finfo(gradients.dtype).eps * (left.norm(dim=2) * right.norm(dim=2)).sum(1)
            self.squares = (products.sum((1, 2)).clamp_min_(0.0).sqrt_() + rests).square_().numpy()
        else:
            self._formed = self.form(inputs, gradients)
            self.squares = row_squares(self._formed.flatten(1))
        if self.bias is not None:
            self._bias_rows = gradients.sum(1)
            self.squares += row_squares(self._bias_rows)

    def add(self, factors: Tensor, rejected: npt.NDArray[np.bool_] | None, total: Tensor) -> None:
        """Add the chunk's gradients times `factors` (n,) to `total` (D,), without the `rejected` rows (n,)."""
        if rejected is not None:
            # A factor of 0 is not enough: 0 x inf is NaN. Inputs may be the caller's, so nothing is changed in place.
            self._formed, self._bias_rows = _blank(self._formed, rejected), _blank(self._bias_rows, rejected)
            if self._pair is not None:
                self._pair = _blank(self._pair[0], rejected), _blank(self._pair[1], rejected)
        if self._formed is not None:
            total[self.weight].add_(self.place_formed(factors @ self._formed.flatten(1)))
        elif self._pair is not None and self._pair[1].dim() == 2:
            self._kept.append((self._pair[0], self._pair[1] * factors[:, None]))
            self._kept_elements += self._pair[0].numel()
            if self._kept_elements > _KEPT_ELEMENTS:
                self.finish(total)
        elif self._pair is not None:
            scaled = self._pair[1] * factors[:, None, None]
            total[self.weight].add_(self.place(scaled.flatten(0, 1).t() @ self._pair[0].flatten(0, 1)))
        if self._bias_rows is not None:
            total[self.bias].add_(factors @ self._bias_rows)
        self._formed = self._pair = self._bias_rows = None

    def write_rows(self, rows: Tensor) -> None:
        """Write the gradients of the groups to their slice of `rows` (n / group, D)."""
        if self._formed is not None:
            rows[:, self.weight] = self.place(self._formed)
        if self._bias_rows is not None and self.bias is not None:
            rows[:, self.bias] = self._bias_rows

    def finish(self, total: Tensor) -> None:
        """Add everything kept since the last call to `total` (D,)."""
        if self._kept:
            inputs, gradients = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
            total[self.weight].add_(self.place(gradients.t() @ inputs))
            if self.bias is not None:
                total[self.bias].add_(gradients.sum(0))
        self._kept, self._kept_elements = [], 0

    def columns(self, inputs: Tensor) -> Tensor:
        """The matrices A, (n, T, d)."""
        raise NotImplementedError

    def form(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        """The gradients of all samples, (n, p, d)."""
        formed = gradients.new_empty(len(gradients), gradients.shape[2], self.layer.weight[0].numel())
        for part in few_samples(gradients.shape[1] * formed.shape[2], len(inputs)):
            torch.bmm(gradients[part].transpose(1, 2), self.columns(inputs[part]), out=formed[part])
        return formed

    def place(self, matrix: Tensor) -> Tensor:
        """Matrices G'A (..., p, d) in the layout of the layer's weight, (..., p * d)."""
        return matrix.flatten(-2)

    def place_formed(self, row: Tensor) -> Tensor:
        """One flat row of `form` in the layout of the layer's weight."""
        return self.place(row.view(self.layer.weight.shape[0], -1))

    def run(self, inputs: Tensor) -> Tensor:
        """The layer's own computation."""
        raise NotImplementedError

    def positions_last(self, gradients: Tensor) -> Tensor:
        """Output gradients as (n, T, p)."""
        raise NotImplementedError

    def input_gradient(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        """Gradient with respect to `inputs`."""
        raise NotImplementedError


class _Watch(torch.autograd.Function):
    """Runs a layer, and in the backward pass hands its inputs and output gradients to its hook."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, hook: LayerHook) -> Tensor:
        # The weight is an argument only so that the output requires grad.
        ctx.save_for_backward(inputs)
        ctx.hook = hook
        return hook.run(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        inputs = ctx.saved_tensors[0].detach()
        ctx.hook.see(inputs, gradients[0])
        return ctx.hook.input_gradient(inputs, gradients[0]) if ctx.needs_input_grad[0] else None, None, None, None


@overload
def _blank(rows: Tensor, rejected: npt.NDArray[np.bool_]) -> Tensor: ...
@overload
def _blank(rows: None, rejected: npt.NDArray[np.bool_]) -> None: ...
def _blank(rows: Tensor | None, rejected: npt.NDArray[np.bool_]) -> Tensor | None:
    """A copy of `rows` with zeros where `rejected`."""
    if rows is None:
        return None
    return rows.masked_fill(torch.from_numpy(rejected).view(-1, *[1] * (rows.dim() - 1)), 0.0)


def few_samples(elements: int, samples: int) -> list[slice]:
    """Slices of samples, with columns of `elements` each, small enough to stay in cache."""
    step = max(1, _COLUMN_ELEMENTS // elements)
    return [slice(begin, begin + step) for begin in range(0, samples, step)]
