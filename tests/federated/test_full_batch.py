"""Several steps on the same samples at once: the values of single steps, where it applies, and where it must not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.federated.users import Noise, draw_users
from torch import nn

from covey.federated import Engine, Sgd, TrainResult, initial_weights
from covey.federated.clip import clipped_gradient_sum
from covey.federated.models import flatten, load_flat
from covey.federated.training import sgd as sgd_file
from covey.federated.training.full_batch import full_batch_steps, pays
from covey.scenario import Scenario

SHAPE, CLASSES, STEPS = (1, 8, 8), 4, 6
SIZES = [12, 5, 9]


def chains() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "softmax": nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES)),
        "mlp": nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, CLASSES)),
        "deep": nn.Sequential(
            nn.Flatten(), nn.ReLU(), nn.Linear(64, 16, bias=False), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(),
            nn.Linear(8, CLASSES, bias=False),
        ),
        "no_relu": nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Linear(16, CLASSES)),
    }  # fmt: skip


def samples(count: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    data = draw_users([count], SHAPE, CLASSES)
    return torch.from_numpy(data.x), torch.from_numpy(data.y)


def single_steps(
    module: nn.Module, weights: torch.Tensor, x: torch.Tensor, y: torch.Tensor, scale: float, clip: float
) -> tuple[torch.Tensor, np.ndarray]:
    norms = []
    for _ in range(STEPS):
        load_flat(module, weights.numpy())
        found = clipped_gradient_sum(module, x, y, clip)
        weights = weights - scale * found.total
        norms.append(found.norms.numpy())
    return weights, np.array(norms)


@pytest.mark.parametrize("clip", [math.inf, 2.0, 0.3, 1e-12])
@pytest.mark.parametrize("name", chains())
def test_steps_at_once_are_single_steps(name: str, clip: float) -> None:
    module, (x, y) = chains()[name], samples()
    start = torch.from_numpy(flatten(module).astype(np.float64))
    # So that weights move far, whatever the clipping norm.
    rate = 4.0 / min(clip, 2.0)
    wanted, norms = single_steps(module, start, x, y, rate / 8, clip)
    found = full_batch_steps(module, start, x, y, count=STEPS, rate=rate, size=8, clip=clip)
    assert found is not None
    assert found.weights.dtype == torch.float64
    moved = torch.linalg.vector_norm(wanted - start)
    assert moved > 0.5
    assert torch.linalg.vector_norm(found.weights - wanted) < 2e-5 * moved
    np.testing.assert_allclose(found.norms, norms, rtol=2e-3, atol=2e-5)
    if clip == 2.0 and name == "mlp":
        assert 0 < (norms > clip).mean() < 1, "some samples are clipped and some are not"


def test_the_start_is_left_as_it_is() -> None:
    module, (x, y) = chains()["mlp"], samples()
    start = torch.from_numpy(flatten(module).astype(np.float64))
    before = start.clone()
    assert full_batch_steps(module, start, x, y, count=STEPS, rate=1.0, size=8, clip=1.0) is not None
    assert torch.equal(start, before)


def test_it_is_used_where_it_halves_the_work_alone() -> None:
    assert pays(200, 784, 200, 10)
    assert not pays(200, 784, 200, 2)
    assert not pays(200, 784, 200, 1)
    assert not pays(800, 784, 200, 10)
    assert not pays(75, 64, 10, 5)
    # 2 x 10 x n d p against 2 x (2 n d p + n n d + 10 n n p): equal at n = 8 d p / (d + 10 p).
    assert pays(104, 150, 100, 10)
    assert not pays(105, 150, 100, 10)


def test_other_modules_and_gradients_that_are_not_finite_are_left_to_single_steps() -> None:
    x, y = samples()

    def found(module: nn.Module, x: torch.Tensor) -> Any:
        start = torch.from_numpy(flatten(module).astype(np.float64))
        return full_batch_steps(module, start, x, y, count=STEPS, rate=0.1, size=8, clip=1.0)

    assert found(chains()["mlp"], x) is not None
    tanh = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    assert found(tanh, x) is None
    assert found(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, CLASSES)), x) is None
    watched = chains()["mlp"]
    assert found(watched, x) is not None
    watched[1].register_forward_hook(lambda layer, inputs, outputs: outputs * 2)
    assert found(watched, x) is None
    broken = x.clone()
    broken[3] = np.inf
    assert found(chains()["mlp"], broken) is None


def local(unit: str = "sample", adjacency: str = "replace_one", **training: Any) -> Sgd:
    options = {"learning_rate": 1.0, "local": "sgd", "steps": STEPS, **training}
    return Sgd(Scenario(training=options, privacy={"unit": unit, "adjacency": adjacency}))


def train(
    training: Sgd, *, noise: float = 0.0, clip: float = 2.0, workers: int = 1, broken: bool = False
) -> tuple[TrainResult, np.ndarray]:
    module, data, users = chains()["mlp"], draw_users(SIZES, SHAPE, CLASSES), np.arange(len(SIZES))
    if broken:
        data.x[data.offsets[1]] = np.inf
    weights = initial_weights(module, 2, seed=4)
    with Engine(module, data, tasks=2, workers=workers, seed=1, noise=Noise(1), training=training) as engine:
        engine.publish(weights, np.zeros_like(weights))
        found = engine.train(
            3, users, users % 2, np.full(3, clip), np.full(3, noise), learning_rate=1.0,
            batch=training.scenario.training.batch,
        )  # fmt: skip
    return found, weights[users % 2]


def without(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Single steps from now on; how often all at once were asked for is the length of the list."""
    asked: list[int] = []
    monkeypatch.setattr(sgd_file, "full_batch_steps", lambda *_, count, **__: asked.append(count))
    return asked


@pytest.mark.parametrize(("unit", "noise"), [("sample", 0.0), ("device", 0.0), ("device", 0.5)])
def test_an_update_is_that_of_single_steps(monkeypatch: pytest.MonkeyPatch, unit: str, noise: float) -> None:
    ours, start = train(local(unit), noise=noise)
    asked = without(monkeypatch)
    single, _ = train(local(unit), noise=noise)
    assert asked == [STEPS] * 3
    moved = np.linalg.norm(single.uploads - start)
    assert moved > 0.5
    assert np.linalg.norm(ours.uploads - single.uploads) < 2e-5 * moved
    assert not np.array_equal(ours.uploads, single.uploads), "the two ways would not be compared"
    np.testing.assert_allclose(ours.mean_norm, single.mean_norm, rtol=1e-4)
    np.testing.assert_array_equal(ours.clipped_fraction, single.clipped_fraction)
    assert unit == "device" or (0 < ours.clipped_fraction.max() < 1)


@pytest.mark.parametrize(
    ("unit", "noise", "options"),
    [
        ("sample", 0.5, {}),
        ("sample", 0.0, {"momentum": 0.5}),
        ("sample", 0.0, {"batch": 4}),
        ("device", 0.0, {"weight_decay": 0.1}),
        ("device", 0.0, {"proximal": 0.1}),
        ("device", 0.0, {"optimizer": "adam"}),
        ("sample", 0.0, {"batch": 4, "sampling": "poisson", "adjacency": "add_remove"}),
    ],
)
def test_noise_batches_and_other_optimisers_take_single_steps(
    monkeypatch: pytest.MonkeyPatch, unit: str, noise: float, options: dict[str, Any]
) -> None:
    ours, _ = train(local(unit, **options), noise=noise)
    asked = without(monkeypatch)
    single, _ = train(local(unit, **options), noise=noise)
    assert asked == []
    assert ours.uploads.tobytes() == single.uploads.tobytes()


def test_a_sample_that_is_not_finite_is_rejected_as_in_single_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, _ = train(local(), broken=True)
    without(monkeypatch)
    single, _ = train(local(), broken=True)
    assert ours.rejected.tolist() == single.rejected.tolist() == [0, STEPS, 0]
    assert ours.uploads[1].tobytes() == single.uploads[1].tobytes()


def test_bits_do_not_depend_on_workers() -> None:
    one, two = train(local())[0], train(local(), workers=2)[0]
    assert one.uploads.tobytes() == two.uploads.tobytes()
