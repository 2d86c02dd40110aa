"""Computations of one user in a round: task scores, local step, loss and accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from covey.federated.clip import clipped_gradient_sum, group_gradients
from covey.federated.losses import loss_of
from covey.federated.models import load_flat
from covey.federated.strategies import outputs_of

Floats = npt.NDArray[np.float64]
Weights = npt.NDArray[np.float32]

#: Elements of the samples per forward pass.
_FORWARD_ELEMENTS = 1 << 19
#: Weights updated per chunk, few enough to stay in cache.
_CHUNK = 1 << 14


@dataclass(frozen=True)
class LocalUpdate:
    """A user's new `weights` (D,), and clipping statistics.

    `mean_norm` is over the samples with a finite gradient, before clipping; `clipped_fraction` is the
    share of samples with a norm above the clipping norm; `rejected` counts samples with a non-finite gradient. `kept`
    (D,) is the user's own model after the round, which stays on the device; None where it has none.
    """

    weights: Weights
    mean_norm: float
    clipped_fraction: float
    rejected: int
    kept: Weights | None = None


def task_scores(
    module: nn.Module, models: Weights, movements: Weights, x: Tensor, y: Tensor, *, gradients: bool
) -> tuple[Floats, Floats]:
    """Mean loss of each task's model on one user's samples, (K,), and the similarity, (K,), Eqs. (1) and (3).

    `models` and `movements` are (K, D). The similarity is the cosine between the descent direction,
    which is minus the gradient (errata E1), and the model's last movement; 0 where one of them is 0
    (errata E4), and 0 everywhere without `gradients`, which takes forward passes only.
    """
    losses, similarity = group_scores(module, models, movements, [(x[None], y[None])], gradients=gradients)
    return losses[0], similarity[0]


def group_scores(
    module: nn.Module, models: Weights, movements: Weights, groups: Sequence[tuple[Tensor, Tensor]], *, gradients: bool
) -> tuple[Floats, Floats]:
    """`task_scores` of all users of `groups`, (n, K) each; a group is `x` (m, r, *shape) and `y` (m, r) of m users.

    Every model is loaded once. Users of a group go through it as one batch, which is faster for models so small that
    call overhead dominates.
    """
    users = sum(len(x) for x, _ in groups)
    losses, similarity = np.zeros((users, len(models))), np.zeros((users, len(models)))
    for k, (weights, movement) in enumerate(zip(models, movements, strict=True)):
        load_flat(module, weights)
        direction = torch.from_numpy(movement).double()
        length = torch.linalg.vector_norm(direction)
        begin = 0
        for x, y in groups:
            rows = slice(begin, begin + len(x))
            begin = rows.stop
            if not gradients:
                losses[rows, k] = _mean_losses(module, x, y)
            elif len(x) > 1:
                found, sample = group_gradients(module, x, y)
                losses[rows, k] = sample.double().mean(1)
                similarity[rows, k] = _descent_cosines(found, direction, length)
            else:
                one = clipped_gradient_sum(module, x[0], y[0], math.inf)
                losses[rows, k] = one.losses.double().mean()
                similarity[rows, k] = _descent_cosines(one.total[None], direction, length)
    return losses, similarity


def _mean_losses(module: nn.Module, x: Tensor, y: Tensor) -> Floats:
    """Mean loss of each of m users on the module, (m,), from `x` (m, r, *shape) and `y` (m, r)."""
    means: Floats = sample_losses(module, x.flatten(0, 1), y.flatten())[0].reshape(y.shape).mean(1)
    return means


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
    """Mean over one user's samples of a bounded score of each task, (K,): the input of `noisy_max`.

    A sample's score is similarity_weight x s - (1 - similarity_weight) x loss, with its loss clipped to
    [0, loss_bound] and s, the descent rate of its loss along the model's last movement (divided by
    slope_bound), clipped to [-1, 1]. The sum is divided by `size`, the public number of samples, n by default.
    So one sample changes the mean by at most `covey.identification.noisy_max.score_width` / size. Non-finite losses
    count as loss_bound, non-finite slopes as 0.
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
        return loss_of(module)(outputs, y)

    losses, slopes = torch.func.jvp(losses_of, values, tangents)[:2]
    return losses.detach().double().numpy(), slopes.detach().double().numpy()


def evaluate(module: nn.Module, weights: Weights, x: Tensor, y: Tensor) -> tuple[float, int]:
    """Loss, summed over the samples, and number of correctly classified samples."""
    load_flat(module, weights)
    losses, right = sample_losses(module, x, y)
    return float(losses.sum()), int(right.sum())


def sample_losses(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Loss of each sample, (n,), and whether it is classified correctly, (n,)."""
    length = max(32, _FORWARD_ELEMENTS // x[0].numel())
    losses, right = [], []
    with torch.no_grad():
        for part_x, part_y in zip(torch.split(x, length), torch.split(y, length), strict=True):
            if part_x.dim() == 4:
                part_x = part_x.contiguous(memory_format=torch.channels_last)
            outputs = outputs_of(module, part_x, part_y)
            # Before the loss, which may write into its arguments.
            right.append(outputs.argmax(1) == part_y)
            losses.append(loss_of(module)(outputs, part_y).double())
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
    """One step from `weights` (D,): minus learning_rate / size x (sum of clipped gradients + `noise` (D,)).

    Eqs. (5) and (6), with noise on the sum of the clipped gradients (errata E10, E12). `size` is the
    public number of samples, n by default: dividing by the true number would reveal it in the scale of the
    noise. Everything after the gradients is float64, rounded once at the end.
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
    """`weights` - `scale` x `total`, (D,), in float64 and then rounded; in chunks that stay in cache."""
    stepped = np.empty(weights.shape, np.float32)
    with np.errstate(over="ignore"):  # intake rejects an upload that overflowed
        for begin in range(0, len(weights), _CHUNK):
            chunk = slice(begin, begin + _CHUNK)
            stepped[chunk] = weights[chunk] - scale * total[chunk]
    return stepped


def _descent_cosines(gradients: Tensor, direction: Tensor, length: Tensor) -> Floats:
    """Cosine between minus each gradient, rows of (n, D), and `direction` (D,) of that `length`; 0 where undefined."""
    rows = gradients.double()
    cosines = -(rows @ direction) / (torch.linalg.vector_norm(rows, dim=1) * length)
    found: Floats = torch.where(torch.isfinite(cosines), cosines, 0.0).clamp_(-1.0, 1.0).numpy()
    return found
