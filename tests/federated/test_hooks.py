from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from covey.federated.hook_strategy import choose_hooks
from covey.federated.hooks import LayerHook, row_squares
from covey.federated.strategies import Unsupported


@pytest.mark.parametrize("length", [1, 127, 128, 4096, 4097, 18432, 20001])
def test_row_squares_are_exact_to_a_millionth(length: int) -> None:
    rows = torch.from_numpy(np.random.default_rng(length).standard_normal((5, length)).astype(np.float32))
    wanted = rows.double().square().sum(1).numpy()
    assert np.abs(row_squares(rows) / wanted - 1).max() < 1e-6


def test_row_squares_of_large_values_do_not_overflow_where_the_norm_does_not() -> None:
    assert row_squares(torch.full((1, 5), 1e30))[0] == pytest.approx(5e60, rel=1e-6)


def test_hooks_know_their_place_in_the_flat_gradient() -> None:
    module = nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU(), nn.Conv2d(1, 2, 2), nn.Linear(1, 4))
    first, second, third = choose_hooks(module)
    assert (first.weight, first.bias) == (slice(0, 6), None)
    assert (second.weight, second.bias) == (slice(6, 14), slice(14, 16))
    assert (third.weight, third.bias) == (slice(16, 20), slice(20, 24))


def _hooked() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda module, inputs, output: output * 2)
    return layer


@pytest.mark.parametrize(
    "module",
    [
        nn.Embedding(3, 2),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(2, 2, 2, padding="same"),
        _hooked(),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    ],
)
def test_layers_that_hooks_cannot_follow_are_refused(module: nn.Module) -> None:
    with pytest.raises(Unsupported):
        choose_hooks(module)


def _see(layer: nn.Module, x: torch.Tensor) -> tuple[LayerHook, torch.Tensor]:
    (hook,) = choose_hooks(layer)
    hook.expect(len(x))
    outputs = hook.forward(x)
    outputs.square().sum().backward()
    gradient = torch.zeros(sum(p.numel() for p in layer.parameters()), dtype=torch.float64)
    return hook, gradient


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(30, 40), (4, 30)),
        (nn.Linear(3, 2), (40, 3)),
        (nn.Conv2d(20, 30, 3), (20, 4, 4)),
        (nn.Conv2d(1, 2, 3), (1, 9, 9)),
    ],
    ids=["ghost linear", "formed linear", "ghost conv", "formed conv"],
)
def test_ghost_norms_and_formed_gradients_agree_with_differentiation(layer: nn.Module, shape: tuple[int, ...]) -> None:
    layer = layer.double()
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hook, total = _see(layer, x)
    rows = []
    for sample in x:
        loss = layer(sample[None]).square().sum()
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(layer.parameters()))]))
    truth = torch.stack(rows)
    np.testing.assert_allclose(hook.squares, truth.square().sum(1).numpy(), rtol=1e-10)
    factors = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
    hook.add(factors, None, total)
    hook.finish(total)
    torch.testing.assert_close(total, factors @ truth, rtol=1e-10, atol=1e-12)


def test_a_ghost_norm_sees_gradients_that_nearly_cancel() -> None:
    layer = nn.Linear(30, 40, bias=False)
    x = torch.randn(1, 1, 30, generator=torch.Generator().manual_seed(0)).repeat(1, 2, 1)
    (hook,) = choose_hooks(layer)
    hook.expect(1)
    hook.forward(x)
    gradients = torch.ones(1, 2, 40)
    gradients[0, 1] = -1 + 2**-20
    hook.see(x, gradients)
    wanted = float(x[0, 0].double().square().sum()) * 40 * 2.0**-40
    # The norm is exact, and what float32 may leave of the large terms is on top of it.
    rests = 2 * 2.0**-23 * 2 * float(x[0, 0].double().norm()) * 40**0.5
    assert wanted**0.5 <= hook.squares[0] ** 0.5 <= wanted**0.5 + 1.001 * rests
