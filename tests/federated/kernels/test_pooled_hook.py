from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.federated.networks import make, pooled, samples
from torch import Tensor, nn
from torch.nn import functional

from covey.federated import build_model
from covey.federated.clip import clipped_gradient_sum, group_gradients
from covey.federated.hook_strategy import Hooked
from covey.federated.hooks import LayerHook
from covey.federated.kernels.blocks import OUTPUTS, pooled_convolutions
from covey.federated.per_sample import looped_gradients
from covey.federated.steps import sample_losses
from covey.federated.strategies import strategy_for
from covey.scenario.schema import Model

pytest.importorskip("llvmlite", reason="the compiled kernels are optional")
from covey.federated.kernels.convolution import NOTHING, PANEL
from covey.federated.kernels.pooled_hook import CompiledHooks, PooledHook

SHAPES = [
    (1, 16, 8, 8), (3, 32, 32, 32), (32, 64, 16, 16), (5, 16, 7, 10), (8, 48, 2, 2), (40, 16, 9, 5), (16, 16, 3, 12),
    (64, 16, 6, 70),
]  # fmt: skip


def block(channels: int, depth: int, *, bias: bool = True) -> nn.Sequential:
    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(channels, depth, 3, padding=1, bias=bias), nn.MaxPool2d(2), nn.ReLU())

    built = make(build, torch.float32)
    assert isinstance(built, nn.Sequential)
    return built


def hooks_on(module: nn.Module) -> list[LayerHook]:
    return CompiledHooks(module, pooled_convolutions(module)).hooks


def hook_on(module: nn.Module) -> PooledHook:
    (hook,) = hooks_on(module)
    assert isinstance(hook, PooledHook)
    return hook


def seen(module: nn.Sequential, x: Tensor, gradients: Tensor) -> tuple[PooledHook, Tensor, Tensor | None]:
    """The hook after both passes, its outputs, and the gradient of the inputs if they want one."""
    hook = hook_on(module)
    hook.expect(len(x))
    outputs = hook.forward(x)
    outputs.backward(gradients)
    return hook, outputs.detach(), x.grad


@pytest.mark.parametrize(("channels", "depth", "height", "width"), SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_both_passes_equal_those_of_the_three_layers(
    channels: int, depth: int, height: int, width: int, bias: bool
) -> None:
    module = block(channels, depth, bias=bias)
    x = samples(4, (channels, height, width), 2, torch.float32)[0].requires_grad_()
    gradients = samples(5, (depth, height // 2, width // 2), 2, torch.float32)[0][:4]
    hook, outputs, input_gradient = seen(module, x, gradients)
    exact = make(lambda: block(channels, depth, bias=bias))
    exact.load_state_dict(module.state_dict())
    x_exact = x.detach().double().requires_grad_()
    wanted = exact(x_exact)
    torch.testing.assert_close(outputs.double(), wanted.detach(), rtol=1e-5, atol=1e-5)
    wanted.backward(gradients.double())
    assert input_gradient is not None
    torch.testing.assert_close(input_gradient.double(), x_exact.grad, rtol=1e-5, atol=1e-5)
    rows = []
    for sample, gradient in zip(x_exact.detach(), gradients.double(), strict=True):
        found = torch.autograd.grad(exact(sample[None]), list(exact.parameters()), gradient[None])
        rows.append(torch.cat([part.flatten() for part in found]))
    truth = torch.stack(rows)
    np.testing.assert_allclose(hook.squares, truth.square().sum(1).numpy(), rtol=1e-5)
    total, factors = torch.zeros(truth.shape[1], dtype=torch.float64), torch.tensor([0.5, 0.0, 2.0, 1.0])
    hook.add(factors, None, total)
    torch.testing.assert_close(total, factors.double() @ truth, rtol=1e-4, atol=1e-4)


def test_the_first_of_equal_pixels_gets_the_gradient_and_none_where_nothing_is_above_zero() -> None:
    module = block(1, 16)
    with torch.no_grad():
        module[0].weight.zero_()
        module[0].weight[:, :, 1, 1] = 1.0
        module[0].bias.zero_()
    x = torch.tensor([[[[2.0, 2.0, -1.0, -1.0], [2.0, 2.0, -1.0, 0.0]]]], requires_grad=True)
    hook, outputs, input_gradient = seen(module, x, torch.ones(1, 16, 1, 2))
    assert outputs[0, :, 0].unique(dim=0).tolist() == [[2.0, 0.0]]
    assert hook._codes.reshape(2, 16).tolist() == [[0] * 16, [NOTHING] * 16]
    assert input_gradient is not None
    assert input_gradient.flatten().tolist() == [16.0, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channels", [3, 8])
def test_images_that_are_not_finite_have_no_finite_gradient(channels: int, value: float) -> None:
    module = block(channels, 16)
    x = samples(3, (channels, 6, 6), 2, torch.float32)[0]
    # At the edge of an image of odd size, where no pooled pixel would see it.
    x = functional.pad(x, (0, 1, 0, 1))
    x[1, 0, 6, 6] = value
    hook, outputs, _ = seen(module, x, torch.ones(3, 16, 3, 3))
    assert np.isfinite(hook.squares).tolist() == [True, False, True]
    total = torch.zeros(16 * channels * 9 + 16, dtype=torch.float64)
    hook.add(torch.tensor([1.0, 0.0, 1.0]), np.array([False, True, False]), total)
    assert torch.isfinite(total).all()
    assert outputs.shape == (3, 16, 3, 3)


def test_nan_propagates_through_pooling() -> None:
    module = block(1, 16)
    x = torch.zeros(1, 1, 2, 2)
    for place in range(4):
        spoilt = x.clone()
        spoilt[0, 0, place // 2, place % 2] = torch.nan
        hook = hook_on(module)
        hook.expect(1)
        assert hook.forward(spoilt).isnan().all() == module(spoilt).isnan().all()


def test_the_networks_of_the_scenarios_are_suited_in_either_order() -> None:
    module = build_model(Model(name="cnn"), (3, 32, 32), 10)
    assert [isinstance(hook, PooledHook) for hook in hooks_on(module)] == [True, True, False, False, False]
    hooks = hooks_on(make(pooled, torch.float32))
    assert [isinstance(hook, PooledHook) for hook in hooks] == [True, True, False]


class Shared(nn.Module):
    """One ReLU for several places."""

    def __init__(self) -> None:
        super().__init__()
        relu = nn.ReLU()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2), relu)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), relu, nn.Linear(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        head: Tensor = self.head(self.features(x))
        return head


class Looking(nn.Module):
    """Takes what the pooling gives before ReLU does."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU())
        self.out = nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        between = self.features[1](self.features[0](x))
        out: Tensor = self.out(self.features[2](between).flatten(1))
        return out * (1 + between.mean((1, 2, 3))[:, None])


def test_a_module_that_looks_between_the_layers_gets_ordinary_hooks() -> None:
    module = make(Looking, torch.float32)
    x, y = samples(4, (1, 4, 4), 2, torch.float32)
    strategy = strategy_for(module, x, y)
    assert isinstance(strategy, Hooked)
    assert not any(isinstance(hook, PooledHook) for hook in strategy.hooks)
    found = clipped_gradient_sum(module, x, y, 1e6)
    torch.testing.assert_close(found.total.float(), looped_gradients(module, x, y)[0].sum(0), rtol=1e-4, atol=1e-5)


def _sequence(*, stride: int | None = None, relu: nn.Module | None = None, **changes: object) -> nn.Module:
    settings: dict[str, object] = {"in_channels": 1, "out_channels": 16, "kernel_size": 3, "padding": 1} | changes
    return nn.Sequential(nn.Conv2d(**settings), nn.MaxPool2d(2, stride), relu or nn.ReLU())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "module",
    [
        _sequence(out_channels=10),
        _sequence(kernel_size=5, padding=2),
        _sequence(padding=0),
        _sequence(dilation=2, padding=2),
        _sequence(stride=1),
        _sequence(relu=nn.Tanh()),
        _sequence().double(),
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()),
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.ReLU()),
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2)),
        Shared(),
    ],
)
def test_all_other_layers_keep_their_own_hooks(module: nn.Module) -> None:
    assert not pooled_convolutions(module)


def test_a_hook_on_the_pooling_is_not_passed_over() -> None:
    module = block(1, 16)
    module[1].register_forward_hook(lambda layer, inputs, output: output * 2)
    assert not pooled_convolutions(module)


def test_the_layers_are_given_back_as_they_were() -> None:
    module = make(pooled, torch.float32)
    x, y = samples(4, (3, 9, 10), 3, torch.float32)
    before = module(x)
    clipped_gradient_sum(module, x, y, 1.0)
    assert not any("forward" in vars(layer) for layer in module.modules())
    torch.testing.assert_close(module(x), before, rtol=0, atol=0)


def test_gradients_of_groups_are_added_up() -> None:
    module = make(pooled, torch.float32)
    x, y = samples(6, (3, 9, 10), 3, torch.float32)
    rows, _ = group_gradients(module, x.view(2, 3, 3, 9, 10), y.view(2, 3))
    single = looped_gradients(module, x, y)[0].view(2, 3, -1).mean(1)
    torch.testing.assert_close(rows, single, rtol=1e-4, atol=1e-6)


def test_a_sample_gives_the_same_bits_alone_and_among_others() -> None:
    module = block(8, 16)
    x = samples(5, (8, 6, 6), 2, torch.float32)[0]
    gradients = samples(6, (16, 3, 3), 2, torch.float32)[0][:5]
    together, outputs, _ = seen(module, x, gradients)
    for sample in range(5):
        alone, output, _ = seen(module, x[sample : sample + 1], gradients[sample : sample + 1])
        assert torch.equal(output[0], outputs[sample])
        assert alone.squares[0] == together.squares[sample]


def test_losses_without_gradients_are_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    module = make(pooled, torch.float32)
    x, y = samples(300, (3, 9, 10), 3, torch.float32)
    seen_samples = []
    run = PooledHook.run
    monkeypatch.setattr(
        PooledHook, "run", lambda hook, inputs: (seen_samples.append(len(inputs)), run(hook, inputs))[1]
    )
    losses, right = sample_losses(module, x, y)
    assert sum(seen_samples) >= 2 * 300
    outputs = module(x)
    wanted = functional.cross_entropy(outputs, y, reduction="none").detach()
    np.testing.assert_allclose(losses, wanted.double().numpy(), rtol=1e-4, atol=1e-5)
    assert (right == (outputs.argmax(1) == y).numpy()).mean() > 0.99
    assert not any("forward" in vars(layer) for layer in module.modules())


def test_blocks_know_the_width_of_the_kernels() -> None:
    assert OUTPUTS == PANEL
