"""What one user computes in a round: scores of the tasks, its local step, its loss and accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from covey.federated.clip import clipped_gradient_sum, group_gradients
from covey.federated.models import load_flat
from covey.federated.strategies import outputs_of

Floats = npt.NDArray[np.float64]
Weights = npt.NDArray[np.float32]

#: Elements of the samples that go through a forward pass at once.
_FORWARD_ELEMENTS = 1 << 19
#: Weights that take a step at once.
_PIECE = 1 << 14


@dataclass(frozen=True)
class LocalUpdate:
    """A user's new `weights` (D,), and what clipping met.

    `mean_norm` is over the samples with a finite gradient, before clipping; `clipped_fraction` is the
    share of samples with a norm above the clipping norm; `rejected` counts the others.
    """

    weights: Weights
    mean_norm: float
    clipped_fraction: float
    rejected: int


def task_scores(
    module: nn.Module, models: Weights, movements: Weights, x: Tensor, y: Tensor, *, gradients: bool
) -> tuple[Floats, Floats]:
    """Mean loss of each task's model on one user's samples, (K,), and the similarity, (K,), Eqs. (1) and (3).

    `models` and `movements` are (K, D). The similarity is the cosine between the descent direction,
    which is minus the gradient (errata E1), and the model's last movement; 0 where one of them is 0
    (errata E4), and 0 everywhere without `gradients`, which takes forward passes only.
    """
    losses, similarity = np.zeros(len(models)), np.zeros(len(models))
    for k, (weights, movement) in enumerate(zip(models, movements, strict=True)):
        load_flat(module, weights)
        if gradients:
            found = clipped_gradient_sum(module, x, y, math.inf)
            losses[k] = found.losses.double().mean()
            similarity[k] = _descent_cosines(found.total[None], movement)[0]
        else:
            losses[k] = sample_losses(module, x, y)[0].mean()
    return losses, similarity


def group_scores(
    module: nn.Module, models: Weights, movements: Weights, x: Tensor, y: Tensor, *, gradients: bool
) -> tuple[Floats, Floats]:
    """`task_scores` of n users at once, (n, K) each, from `x` (n, r, *shape) and `y` (n, r).

    All users go through each model together, which pays for models so small that calling them costs
    more than computing them.
    """
    losses, similarity = np.zeros((len(x), len(models))), np.zeros((len(x), len(models)))
    for k, (weights, movement) in enumerate(zip(models, movements, strict=True)):
        load_flat(module, weights)
        if gradients:
            rows, found = group_gradients(module, x, y)
            losses[:, k] = found.double().mean(1)
            similarity[:, k] = _descent_cosines(rows, movement)
        else:
            losses[:, k] = sample_losses(module, x.flatten(0, 1), y.flatten())[0].reshape(y.shape).mean(1)
    return losses, similarity


def bounded_scores(
    module: nn.Module,
    models: Weights,
    movements: Weights,
    x: Tensor,
    y: Tensor,
    *,
    similarity_weight: float,
    loss_bound: float,
    slope_bound: float,
    size: int | None = None,
) -> Floats:
    """Mean over one user's samples of a bounded score of each task, (K,): what `noisy_max` announces from.

    A sample's score is similarity_weight x s - (1 - similarity_weight) x loss, with its loss cut to
    [0, loss_bound] and s, how fast its loss falls along the model's last movement (divided by
    slope_bound), cut to [-1, 1]. The sum is divided by `size`, the public number of samples, n when not
    given. So one sample can move the mean by at most `covey.identification.noisy_max.score_width` / size. Losses and
    slopes that are not finite count as the worst and as 0.
    """
    means = np.zeros(len(models))
    length = max(32, _FORWARD_ELEMENTS // (2 * x[0].numel()))
    for k, (weights, movement) in enumerate(zip(models, movements, strict=True)):
        load_flat(module, weights)
        norm = float(np.linalg.norm(movement.astype(np.float64)))
        heading = movement / norm if similarity_weight > 0 and norm > 0 else None
        total = 0.0
        for part_x, part_y in zip(torch.split(x, length), torch.split(y, length), strict=True):
            losses, slopes = _losses_and_slopes(module, heading, part_x, part_y)
            bounded = np.nan_to_num(losses, nan=loss_bound, posinf=loss_bound).clip(0.0, loss_bound)
            falls = np.nan_to_num(-slopes / slope_bound, nan=0.0).clip(-1.0, 1.0)
            total += float((similarity_weight * falls - (1.0 - similarity_weight) * bounded).sum())
        means[k] = total / (size or len(x))
    return means


def loss_table(module: nn.Module, models: Weights, x: Tensor, y: Tensor) -> Floats:
    """Loss of each of one user's n samples on each of the `models` (K, D), (n, K)."""
    table = np.zeros((len(y), len(models)))
    for k, weights in enumerate(models):
        load_flat(module, weights)
        table[:, k] = sample_losses(module, x, y)[0]
    return table


def _losses_and_slopes(module: nn.Module, heading: Weights | None, x: Tensor, y: Tensor) -> tuple[Floats, Floats]:
    """Loss of each sample and its derivative along `heading` (D,), (n,) each, in one forward pass."""
    if heading is None:
        return sample_losses(module, x, y)[0], np.zeros(len(x))
    names = [name for name, _ in module.named_parameters()]
    values = tuple(parameter.detach() for parameter in module.parameters())
    pieces = torch.split(torch.from_numpy(heading), [value.numel() for value in values])
    tangents = tuple(piece.view_as(value) for piece, value in zip(pieces, values, strict=True))

    def losses_of(*parameters: Tensor) -> Tensor:
        outputs = torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x,))
        return functional.cross_entropy(outputs, y, reduction="none")

    losses, slopes = torch.func.jvp(losses_of, values, tangents)[:2]
    return losses.detach().double().numpy(), slopes.detach().double().numpy()


def evaluate(module: nn.Module, weights: Weights, x: Tensor, y: Tensor) -> tuple[float, int]:
    """Loss, summed over the samples, and number of samples classified right."""
    load_flat(module, weights)
    losses, right = sample_losses(module, x, y)
    return float(losses.sum()), int(right.sum())


def sample_losses(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Cross-entropy loss of each sample, (n,), and whether it is classified right, (n,)."""
    length = max(32, _FORWARD_ELEMENTS // x[0].numel())
    losses, right = [], []
    with torch.no_grad():
        for part_x, part_y in zip(torch.split(x, length), torch.split(y, length), strict=True):
            if part_x.dim() == 4:
                part_x = part_x.contiguous(memory_format=torch.channels_last)
            outputs = outputs_of(module, part_x, part_y)
            losses.append(functional.cross_entropy(outputs, part_y, reduction="none").double())
            right.append(outputs.argmax(1) == part_y)
    return torch.cat(losses).numpy(), torch.cat(right).numpy()


def noised_step(
    module: nn.Module,
    weights: Weights,
    x: Tensor,
    y: Tensor,
    *,
    clip: float,
    noise: Floats | None,
    learning_rate: float,
    size: int | None = None,
) -> LocalUpdate:
    """A user's step from `weights` (D,): clipped gradients and `noise` (D,) added up, times learning_rate / size.

    Eqs. (5) and (6), with noise on the sum of the clipped gradients (errata E10, E12). `size` is the
    public number of samples, n when not given: dividing by the number that is really there would show it
    in the scale of the noise. Everything after the gradients is float64, and rounded once at the end.
    """
    if len(x) == 0:
        raise ValueError("a local step needs at least one sample, but x is empty")
    if noise is not None and noise.shape != weights.shape:
        raise ValueError(f"noise has shape {noise.shape}, but there are {len(weights)} weights; draw one for each")
    load_flat(module, weights)
    found = clipped_gradient_sum(module, x, y, clip)
    total = found.total.numpy()
    if noise is not None:
        total += noise
    norms = found.norms.numpy()
    finite = np.isfinite(norms)
    stepped = _stepped(weights, total, learning_rate / (size or len(x)))
    return LocalUpdate(
        stepped,
        mean_norm=float(norms[finite].mean()) if finite.any() else 0.0,
        clipped_fraction=float((norms[finite] > clip).sum() / len(x)),
        rejected=found.rejected,
    )


def _stepped(weights: Weights, total: Floats, scale: float) -> Weights:
    """`weights` - `scale` x `total`, (D,), in float64 and then rounded; piece by piece, so that pieces stay cached."""
    stepped = np.empty(weights.shape, np.float32)
    with np.errstate(over="ignore"):  # an overflow is seen and rejected where the upload arrives
        for begin in range(0, len(weights), _PIECE):
            piece = slice(begin, begin + _PIECE)
            stepped[piece] = weights[piece] - scale * total[piece]
    return stepped


def _descent_cosines(gradients: Tensor, movement: Weights) -> Floats:
    """Cosine between minus each gradient, rows of (n, D), and `movement` (D,); 0 where undefined."""
    direction = torch.from_numpy(movement).double()
    rows = gradients.double()
    lengths = torch.linalg.vector_norm(rows, dim=1) * torch.linalg.vector_norm(direction)
    cosines = -(rows @ direction) / lengths
    found: Floats = torch.where(torch.isfinite(cosines), cosines, 0.0).clamp_(-1.0, 1.0).numpy()
    return found
