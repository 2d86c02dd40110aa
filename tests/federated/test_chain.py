from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covey.federated.chain import Chain
from covey.federated.clip import ClippedSum, clipped_gradient_sum, group_gradients
from covey.federated.hook_strategy import Hooked, choose_hooks
from covey.federated.strategies import strategy_for


def softmax() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def deep() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(inplace=True), nn.Linear(16, 10)
    )


def relu_first() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(64, 9, bias=False), nn.ReLU(), nn.Linear(9, 10))


CHAINS = (softmax, deep, relu_first)


def some(count: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(count)
    return torch.randn(count, 8, 8, generator=rng), torch.randint(10, (count,), generator=rng)


def bits(found: ClippedSum) -> list[bytes]:
    return [found.total.numpy().tobytes(), found.norms.numpy().tobytes(), found.losses.numpy().tobytes()]


def hooked(module: nn.Module, x: Tensor, y: Tensor) -> Hooked:
    strategy = strategy_for(module, x, y)
    assert isinstance(strategy, Hooked)
    return strategy


@pytest.mark.parametrize("build", CHAINS)
@pytest.mark.parametrize("clip", [math.inf, 3.0, 0.5])
@pytest.mark.parametrize("count", [1, 3, 37, 500])
def test_a_chain_gives_the_bits_of_autograd(build: Callable[[], nn.Module], clip: float, count: int) -> None:
    torch.manual_seed(1)
    module, (x, y) = build(), some(count)
    if count == 37:  # samples whose gradients are not finite
        x[4], x[5] = math.nan, math.inf
    strategy = hooked(module, x, y)
    assert strategy.chain is not None
    assert strategy.chain.holds(module)
    found = clipped_gradient_sum(module, x, y, clip)
    strategy.chain = None
    plain = clipped_gradient_sum(module, x, y, clip)
    assert bits(found) == bits(plain)
    assert found.rejected == plain.rejected == (2 if count == 37 else 0)


@pytest.mark.parametrize("build", CHAINS)
def test_groups_get_the_bits_of_autograd(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(2)
    module, (x, y) = build(), some(60)
    x, y = x.view(4, 15, 8, 8), y.view(4, 15)
    strategy = hooked(module, x[0], y[0])
    found = group_gradients(module, x, y)
    strategy.chain = None
    for one, other in zip(found, group_gradients(module, x, y), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(64, 10),
        nn.Sequential(nn.Linear(8, 10)),  # not flat: gradients have positions
        nn.Sequential(nn.Flatten(2), nn.Linear(64, 10)),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh()),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10)),
        nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(64, 10))),
    ],
)
def test_other_modules_are_no_chains(module: nn.Module) -> None:
    assert Chain.of(module, choose_hooks(module)) is None


def _append(module: nn.Sequential) -> None:
    module.append(nn.ReLU())


def _replace(module: nn.Sequential) -> None:
    module[2] = nn.Tanh()


def _patch(module: nn.Sequential) -> None:
    module[2].forward = torch.tanh  # type: ignore[assignment]


def _change_outputs(module: nn.Sequential) -> None:
    module.register_forward_hook(lambda layer, given, outputs: 2 * outputs)


def _change_gradients(module: nn.Sequential) -> None:
    module[2].register_full_backward_hook(lambda layer, inner, outer: (inner[0] * 2,))


@pytest.mark.parametrize("change", [_append, _replace, _patch, _change_outputs, _change_gradients])
def test_a_chain_that_is_changed_later_is_left_to_autograd(change: Callable[[nn.Sequential], None]) -> None:
    torch.manual_seed(3)
    module, (x, y) = deep(), some(20)
    assert isinstance(module, nn.Sequential)
    strategy = hooked(module, x, y)
    before = clipped_gradient_sum(module, x, y, math.inf)
    change(module)
    found = clipped_gradient_sum(module, x, y, math.inf)
    assert hooked(module, x, y) is strategy
    strategy.chain = None
    assert bits(found) == bits(clipped_gradient_sum(module, x, y, math.inf)) != bits(before)
