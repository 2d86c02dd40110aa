from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from covey.errors import ScenarioError
from covey.federated import (
    build_model,
    check_module,
    count_weights,
    flatten,
    initial_weights,
    load_flat,
    register_model,
)
from covey.parts import MODELS
from covey.scenario.schema import Model


def test_the_cnn_has_the_papers_number_of_weights() -> None:
    module = build_model(Model(name="cnn"), (3, 32, 32), 10)
    assert count_weights(module) == 552_714
    assert module(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 5, 9)])
def test_the_cnn_fits_other_image_sizes(shape: tuple[int, ...]) -> None:
    module = build_model(Model(name="cnn", channels=(4, 6)), shape, 7)
    assert module(torch.zeros(3, *shape)).shape == (3, 7)


def test_pooling_before_relu_equals_relu_before_pooling() -> None:
    module = build_model(Model(name="cnn", channels=(4, 6)), (2, 8, 8), 5)
    assert isinstance(module, nn.Sequential)
    layers = list(module)
    swapped = nn.Sequential(layers[0], layers[2], layers[1], layers[3], layers[5], layers[4], *layers[6:])
    x = torch.randn(6, 2, 8, 8, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([0, 1, 2, 3, 4, 0])
    for one, other in zip(*(_gradients(m, x, y) for m in (module, swapped)), strict=True):
        torch.testing.assert_close(one, other)


def _gradients(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(nn.functional.cross_entropy(module(x), y), list(module.parameters()))


def test_mlp_and_softmax_have_the_layers_asked_for() -> None:
    assert count_weights(build_model(Model(name="softmax"), (4, 5), 3)) == 20 * 3 + 3
    mlp = build_model(Model(name="mlp", hidden=(7, 6)), (20,), 3)
    assert count_weights(mlp) == 20 * 7 + 7 + 7 * 6 + 6 + 6 * 3 + 3


@pytest.mark.parametrize("shape", [(20,), (1, 3, 8)])
def test_the_cnn_refuses_what_is_not_an_image(shape: tuple[int, ...]) -> None:
    with pytest.raises(ScenarioError, match="needs images"):
        build_model(Model(name="cnn"), shape, 3)


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="cnn, mlp, softmax"):
        Model(name="resnet")


def test_a_builder_must_return_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS, "_registered", {"number": lambda model, shape, classes: 3, "short": lambda model: 3})
    with pytest.raises(ScenarioError, match="returned int, not a torch"):
        build_model(Model(name="number"), (4,), 2)
    with pytest.raises(ScenarioError, match="cannot be called with 3 arguments"):
        build_model(Model(name="short"), (4,), 2)


def test_a_registered_model_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS, "_registered", {})
    register_model("tiny", lambda model, shape, classes: nn.Linear(shape[0], classes, bias=False))
    assert count_weights(build_model(Model(name="tiny"), (4,), 2)) == 8


def test_building_and_initialising_leave_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    initial_weights(build_model(Model(name="mlp"), (4,), 2), 2, seed=1)
    assert torch.equal(torch.rand(4), wanted)


def test_initial_weights_differ_by_task_and_seed_and_repeat() -> None:
    module = build_model(Model(name="mlp"), (6,), 3)
    before = flatten(module)
    weights = initial_weights(module, 3, seed=5)
    assert weights.shape == (3, count_weights(module))
    assert weights.dtype == np.float32
    assert np.array_equal(weights, initial_weights(module, 3, seed=5))
    assert np.array_equal(weights[:2], initial_weights(module, 2, seed=5))
    assert not np.array_equal(weights, initial_weights(module, 3, seed=6))
    assert all(not np.array_equal(weights[a], weights[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert np.array_equal(flatten(module), before)


def test_initial_weights_have_torchs_default_spread() -> None:
    weights = initial_weights(nn.Linear(400, 300), 2, seed=0)
    bound = 1 / np.sqrt(400)
    assert np.abs(weights).max() <= bound
    assert weights.std() == pytest.approx(bound / np.sqrt(3), rel=0.02)


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.t()


def test_a_module_that_cannot_be_drawn_anew_is_refused() -> None:
    with pytest.raises(ScenarioError, match="reset_parameters"):
        initial_weights(Constant(), 2, seed=0)


def test_flat_weights_follow_the_order_of_the_parameters() -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(3, 2))
    wanted = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    assert np.array_equal(flatten(module), wanted)


def test_loading_copies_into_the_same_memory() -> None:
    module = nn.Linear(3, 2)
    places = [p.data_ptr() for p in module.parameters()]
    weights = np.arange(8, dtype=np.float32)
    weights.flags.writeable = False
    load_flat(module, weights)
    assert [p.data_ptr() for p in module.parameters()] == places
    assert np.array_equal(flatten(module), weights)
    assert module.weight.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("size", [7, 9])
def test_loading_the_wrong_number_of_weights_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="8 weights"):
        load_flat(nn.Linear(3, 2), np.zeros(size, np.float32))


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x - x.mean(0))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layer(x)


def _frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3))
    module[0].weight.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), r"layer '1' \(BatchNorm1d\).*GroupNorm"),
        (nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True), nn.Linear(4, 3)), "InstanceNorm1d"),
        (nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), r"layer '1' \(Dropout\).*random"),
        (Centred(), "depends on the other samples"),
        (Counting(), "buffer 'calls' changes"),
        (_frozen(), "'0.weight' is frozen"),
        (nn.ReLU(), "no parameters"),
        (nn.LazyLinear(3), "no shape yet"),
        (nn.Linear(5, 3), r"does not accept samples of shape \(4,\)"),
        (nn.Linear(4, 2), r"returns shape \(3, 2\)"),
        (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3).double()), "one type"),
    ],
)
def test_modules_that_break_per_sample_clipping_are_refused(module: nn.Module, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        check_module(module, (4,), 3)


def test_dropout_of_nothing_and_constant_buffers_are_allowed() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0))
    module.register_buffer("scale", torch.ones(3))
    check_module(module, (4,), 3)
