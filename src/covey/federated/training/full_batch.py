"""Several plain steps on the same samples, without forming the first layer's weights in between.

Steps move a dense layer with inputs A (n, d), n samples, by outer products of these inputs alone: after some of them
its weights are W - c S'A, where S (n, p) sums its (clipped) output gradients so far, and its outputs are
AW' + b - c (AA' + 1) S. With AA' (n, n) at hand, a step costs n x n x p multiplications instead of 2 x n x d x p. That
pays where a user has fewer samples than inputs, as with images. Results are those of step after step, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from covey.federated.clip import clipping_factors, clipping_unit
from covey.federated.hook_strategy import Hooked
from covey.federated.hooks import row_squares
from covey.federated.losses import Loss, differentiated, loss_of
from covey.federated.strategies import strategy_for

Floats = npt.NDArray[np.float64]

#: How many times fewer multiplications the first layer has to take; for less, last bits stay those of single steps.
_GAIN = 2


@dataclass(frozen=True)
class FullBatchSteps:
    """Weights (D,) float64 after all steps, and the gradient norm of every sample in every step, (steps, n)."""

    weights: Tensor
    norms: Floats


def full_batch_steps(
    module: nn.Module, start: Tensor, x: Tensor, y: Tensor, *, count: int, rate: float, size: int, clip: float
) -> FullBatchSteps | None:
    """`count` steps from `start` (D,): minus rate / size x the sum over all samples of gradients clipped to `clip`.

    None where the module is no chain of dense layers or this would not pay, which depends on shapes alone, and where a
    gradient is not finite: then single steps have to say which samples are left out.
    """
    if len(x) == 0:
        return None
    strategy = strategy_for(module, x, y)
    chain = strategy.chain if isinstance(strategy, Hooked) else None
    if chain is None or not chain.holds(module):
        return None
    layers = chain.layers
    place = next(number for number, layer in enumerate(layers) if isinstance(layer, nn.Linear))
    layer = layers[place]
    assert isinstance(layer, nn.Linear)
    if not pays(len(x), layer.in_features, layer.out_features, count):
        return None
    dense = _split(layers, start)
    with torch.no_grad(), np.errstate(divide="ignore", invalid="ignore"):
        inputs = nn.Sequential(*layers[:place])(x)
        return _steps(dense, layers[place + 1 :], loss_of(module), inputs, y, count, rate / size, clip)


def pays(samples: int, inputs: int, outputs: int, count: int) -> bool:
    """Whether `count` steps take the first layer, of this size, at most half of the multiplications of single steps."""
    single = 2 * count * samples * inputs * outputs
    products = samples * samples * (inputs + count * outputs)
    return single >= _GAIN * (2 * samples * inputs * outputs + products)


class _Dense:
    """A `Linear` layer's weight (p, d) and bias (p,): stepped in float64, rounded to float32 to compute with."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight.clone(), None if bias is None else bias.clone()

    def run(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self.weight.float(), None if self.bias is None else self.bias.float())

    def squares(self, lengths: Floats, gradients: Tensor) -> Floats:
        """(n,) squared gradient norms for inputs of squared `lengths` (n,)."""
        return np.asarray(row_squares(gradients) * (lengths + (self.bias is not None)))

    def step(self, inputs: Tensor, gradients: Tensor, scale: float) -> None:
        """Minus `scale` x the sum over samples of outer products of `gradients` (n, p) and `inputs` (n, d)."""
        self.weight.sub_(gradients.t() @ inputs, alpha=scale)
        if self.bias is not None:
            self.bias.sub_(gradients.sum(0), alpha=scale)

    def flat(self) -> list[Tensor]:
        return [self.weight.flatten()] + ([] if self.bias is None else [self.bias])


def _split(layers: list[nn.Module], start: Tensor) -> list[_Dense]:
    """The dense layers with their part of `start` (D,)."""
    dense, at = [], 0
    for layer in layers:
        if isinstance(layer, nn.Linear):
            pieces: list[Tensor | None] = [None, None]
            for number, parameter in enumerate([layer.weight, layer.bias]):
                if parameter is not None:
                    pieces[number] = start[at : at + parameter.numel()].double().view_as(parameter)
                    at += parameter.numel()
            assert pieces[0] is not None
            dense.append(_Dense(pieces[0], pieces[1]))
    return dense


def _steps(
    dense: list[_Dense],
    later: list[nn.Module],
    loss: Loss,
    inputs: Tensor,
    y: Tensor,
    count: int,
    scale: float,
    clip: float,
) -> FullBatchSteps | None:
    """The steps, given the `inputs` (n, d) of the first of the `dense` layers and the layers after it."""
    first = dense[0]
    begun, products, lengths = first.run(inputs), inputs @ inputs.t(), row_squares(inputs)
    if first.bias is not None:
        products += 1.0
    scale *= clipping_unit(clip)
    summed = torch.zeros(begun.shape, dtype=torch.float64)
    norms = np.empty((count, len(y)))
    for number in range(count):
        outputs = begun if number == 0 else begun - (products @ summed.float()).mul_(scale)
        seen = _through(dense[1:], later, loss, outputs, y)
        squares = first.squares(lengths, seen.first)
        for layer, into, gradients in seen.others:
            squares += layer.squares(row_squares(into), gradients)
        if not np.isfinite(squares).all():
            return None
        norms[number] = np.sqrt(squares)
        factors = torch.from_numpy(clipping_factors(norms[number], clip, outputs.dtype)).to(outputs.dtype)[:, None]
        summed += seen.first * factors
        for layer, into, gradients in seen.others:
            layer.step(into, gradients * factors, scale)
    first.step(inputs, summed.float(), scale)
    return FullBatchSteps(torch.cat([piece for layer in dense for piece in layer.flat()]), norms)


@dataclass(frozen=True)
class _Seen:
    """Gradients (n, p) at the outputs of the `first` dense layer; of each later one, with its inputs."""

    first: Tensor
    others: list[tuple[_Dense, Tensor, Tensor]]


def _through(dense: list[_Dense], later: list[nn.Module], loss: Loss, values: Tensor, y: Tensor) -> _Seen:
    """Forward from the first dense layer's outputs `values` (n, p), and back to them."""
    left, passed = iter(dense), list[tuple[_Dense | None, Tensor]]()
    for layer in later:
        if isinstance(layer, nn.Linear):
            own = next(left)
            passed.append((own, values))
            values = own.run(values)
        else:
            values = functional.relu(values)
            passed.append((None, values))
    gradients, others = differentiated(loss, values, y)[1], []
    for own_or_relu, kept in reversed(passed):
        if own_or_relu is None:
            gradients = torch.ops.aten.threshold_backward(gradients, kept, 0)
            continue
        others.append((own_or_relu, kept, gradients))
        gradients = gradients @ own_or_relu.weight.float()
    return _Seen(gradients, others)
