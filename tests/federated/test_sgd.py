"""The local training `sgd`: against plain PyTorch loops and loops over samples, its noise, charges and lengths."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.federated.users import Noise, draw_users
from torch import nn
from torch.nn import functional

import covey
from covey.errors import ScenarioError
from covey.federated import Engine, Sgd, Step, TrainResult, build_model, flatten, initial_weights, load_flat
from covey.scenario import Scenario
from covey.scenario.schema import Model
from covey.seeding import generator

SHAPE = (1, 6, 6)
SIZES = [30, 7, 52]


def module(name: str = "cnn") -> nn.Module:
    return build_model(Model(name=name, channels=(3, 4), hidden=(8,)), SHAPE, 4)


def scenario(unit: str = "sample", adjacency: str = "replace_one", **training: Any) -> Scenario:
    privacy = {"unit": unit, "adjacency": adjacency}
    return Scenario(training={"learning_rate": 0.1, "local": "sgd", **training}, privacy=privacy)


def sgd(unit: str = "sample", **training: Any) -> Sgd:
    return Sgd(scenario(unit, **training))


def train(
    local: Any, clip: float = 1e6, noise: float = 0.0, *, name: str = "cnn", sizes: list[int] = SIZES, seed: int = 1,
    round: int = 3, workers: int = 1,
) -> tuple[TrainResult, np.ndarray]:  # fmt: skip
    """The result of all users from one model, and that model."""
    training, weights = local.scenario.training, initial_weights(module(name), 1, seed=4)
    users, n = np.arange(len(sizes)), len(sizes)
    with Engine(module(name), draw_users(sizes, SHAPE, 4), tasks=1, workers=workers, seed=seed, noise=Noise(seed),
                training=local) as engine:  # fmt: skip
        engine.publish(weights, np.zeros_like(weights))
        found = engine.train(
            round, users, np.zeros(n, dtype=np.int64), np.full(n, clip), np.full(n, noise),
            learning_rate=training.learning_rate, batch=training.batch,
        )  # fmt: skip
    return found, weights[0]


def own_samples(user: int, sizes: list[int] = SIZES) -> tuple[torch.Tensor, torch.Tensor]:
    data = draw_users(sizes, SHAPE, 4)
    rows = slice(data.offsets[user], data.offsets[user + 1])
    return torch.from_numpy(data.x[rows]), torch.from_numpy(data.y[rows])


def plain_loop(
    weights: np.ndarray, user: int, steps: int, make: Callable[[Any], torch.optim.Optimizer], batch: int, mu: float
) -> np.ndarray:
    """What torch's own optimiser makes of the same batches."""
    net, (x, y) = module(), own_samples(user)
    load_flat(net, weights)
    optimiser, start = make(net.parameters()), [p.detach().clone() for p in net.parameters()]
    rng, left = generator(1, "train_batch", user=user, round=3), np.zeros(0, dtype=np.int64)
    for _ in range(steps):
        rows = np.arange(len(y))
        if 0 < batch < len(y):
            if len(left) < batch:
                left = rng.permutation(len(y))
            rows, left = left[:batch], left[batch:]
        optimiser.zero_grad()
        loss = functional.cross_entropy(net(x[rows]), y[rows])
        for parameter, first in zip(net.parameters(), start, strict=True):
            loss = loss + mu / 2 * (parameter - first).square().sum()
        loss.backward()
        optimiser.step()
    return flatten(net)


@pytest.mark.parametrize("noise", [0.0, 2.0])
@pytest.mark.parametrize("clip", [0.2, 1e6])
@pytest.mark.parametrize("batch", [0, 10])
def test_one_plain_step_has_the_bits_of_step(noise: float, clip: float, batch: int) -> None:
    ours, _ = train(sgd(batch=batch), clip, noise)
    step, _ = train(Step(Scenario(training={"learning_rate": 0.1, "batch": batch})), clip, noise)
    for name, values in vars(step).items():
        assert getattr(ours, name).tobytes() == values.tobytes(), name


@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize(
    ("options", "make"),
    [
        ({}, lambda p: torch.optim.SGD(p, 0.1)),
        ({"batch": 10}, lambda p: torch.optim.SGD(p, 0.1)),
        ({"momentum": 0.9}, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        ({"momentum": 0.5, "weight_decay": 0.1}, lambda p: torch.optim.SGD(p, 0.1, momentum=0.5, weight_decay=0.1)),
        ({"proximal": 2.0}, lambda p: torch.optim.SGD(p, 0.1)),
        ({"optimizer": "adam", "weight_decay": 0.1}, lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.1)),
        ({"optimizer": "adam", "proximal": 1.0, "batch": 10}, lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0)),
    ],
)
def test_five_steps_are_those_of_a_plain_loop(unit: str, options: dict[str, Any], make: Any) -> None:
    found, weights = train(sgd(unit, steps=5, **options))
    for user in range(len(SIZES)):
        wanted = plain_loop(weights, user, 5, make, options.get("batch", 0), options.get("proximal", 0.0))
        moved = np.linalg.norm(wanted - weights)
        # Adam divides by gradients near 0, which differ in rounding between batched and single samples.
        assert np.linalg.norm(found.uploads[user] - wanted) < (1e-2 if "optimizer" in options else 1e-4) * moved


def test_epochs_are_whole_passes() -> None:
    local = sgd(epochs=2, batch=10)
    assert local.steps(np.array(SIZES)).tolist() == [6, 2, 10]
    found, weights = train(local)
    for user, steps in enumerate((6, 2, 10)):
        wanted = plain_loop(weights, user, steps, lambda p: torch.optim.SGD(p, 0.1), 10, 0.0)
        np.testing.assert_allclose(found.uploads[user], wanted, atol=1e-5)


@pytest.mark.parametrize("clip", [0.05, 0.5])
def test_clipped_noised_steps_are_those_of_a_loop_over_samples(clip: float) -> None:
    """Momentum and noise of every step, sample by sample in float64; noise once for all steps is far off."""
    found, weights = train(sgd(steps=5, momentum=0.5), clip, 0.3)
    for user in range(len(SIZES)):
        net, (x, y) = module().double(), own_samples(user)
        w, velocity = weights.astype(np.float64), 0.0
        noise = 0.3 * Noise(1)(user, 3, "noise", 5 * len(w)).reshape(5, -1)
        once = w.copy()
        for step in range(5):
            load_flat(net, w)
            total = np.zeros(len(w))
            for i in range(len(y)):
                loss = functional.cross_entropy(net(x[i : i + 1].double()), y[i : i + 1])
                g = torch.cat([p.flatten() for p in torch.autograd.grad(loss, list(net.parameters()))]).numpy()
                total += g * min(1.0, clip / np.linalg.norm(g))
            velocity = 0.5 * velocity + total + noise[step]
            w = w - 0.1 / len(y) * velocity
            once = once - 0.1 / len(y) * (velocity - noise[step] * (step > 0))
        scale = np.linalg.norm(w - weights)
        assert np.linalg.norm(found.uploads[user] - w) < 1e-4 * scale
        assert np.linalg.norm(found.uploads[user] - once) > 1e-2 * scale


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("clip", [1e-3, 0.05])
def test_the_update_of_a_device_is_clipped_as_a_whole(optimizer: str, clip: float) -> None:
    """The scaled update, (X / alpha) u, is as long as clip x X and no longer; clipping samples alone is longer."""
    found, weights = train(sgd("device", steps=20, batch=5, optimizer=optimizer), clip)
    lengths = np.linalg.norm(found.uploads.astype(np.float64) - weights, axis=1) / 0.1
    np.testing.assert_allclose(lengths, clip, rtol=1e-3)
    assert (found.clipped_fraction == 1).all()
    only_samples, weights = train(sgd(steps=20, batch=5, optimizer=optimizer), clip)
    assert (np.linalg.norm(only_samples.uploads - weights, axis=1) / 0.1 > 1.1 * clip).all()


def test_a_short_update_of_a_device_is_left_alone_and_one_that_is_not_finite_counts_as_none() -> None:
    found, weights = train(sgd("device", steps=3), 1e3)
    assert (found.clipped_fraction == 0).all()
    assert (found.mean_norm > 0).all()
    lost, weights = train(sgd("device", steps=60, learning_rate=1e12), 1.0)
    assert lost.rejected.tolist() == SIZES
    np.testing.assert_array_equal(lost.uploads, np.broadcast_to(weights, lost.uploads.shape))


OPTIMISERS = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.5, "weight_decay": 0.5, "proximal": 1.0},
    {"batch": 10},
    {"batch": 10, "sampling": "poisson", "momentum": 0.7},
    {"optimizer": "adam"},
]


@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize("options", OPTIMISERS)
def test_upload_noise_is_the_deviation_of_uploads(unit: str, options: dict[str, Any]) -> None:
    """Over the 332 weights of each user, which give it to 4 %."""
    local = sgd(unit, steps=7, **options)
    noisy, _ = train(local, 1e-4, 50.0, name="mlp")
    quiet, _ = train(local, 1e-4, 0.0, name="mlp")
    start = train(local, 1e-4, 0.0, name="mlp")[1] if options.get("optimizer") == "adam" else None
    difference = noisy.uploads.astype(np.float64) - (quiet.uploads if start is None else start)
    wanted = local.upload_noise(np.full(3, 50.0), np.array(SIZES))
    np.testing.assert_allclose(np.sqrt(np.square(difference).mean(axis=1)), wanted, rtol=0.16)
    assert not local.upload_noise(np.zeros(3), np.array(SIZES)).any()


@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize("clip", [0.01, 1.0])
@pytest.mark.parametrize("noise", [0.0, 3.0])
@pytest.mark.parametrize("options", [*OPTIMISERS, {"weight_decay": 5.0}, {"optimizer": "adam", "weight_decay": 5.0}])
def test_an_honest_upload_is_within_reach(unit: str, clip: float, noise: float, options: dict[str, Any]) -> None:
    local = sgd(unit, steps=6, **options)
    found, weights = train(local, clip, noise)
    lengths = np.linalg.norm(found.uploads.astype(np.float64) - weights, axis=1)
    reach = local.reach(np.full(3, clip), np.array(SIZES), np.full(3, noise), len(weights))
    assert (lengths <= reach).all()
    assert (lengths > 0.001 * reach).all()  # a reach of infinity would let everything in


def test_reach_is_met_by_gradients_that_agree() -> None:
    """All samples clipped, all pointing the same way: momentum makes steps as long as reach says."""
    local, sizes = sgd(steps=4, momentum=0.9), [20]
    local_reach = local.reach(np.array([1e-5]), np.array(sizes), np.zeros(1), 10)[0] - 1e-3
    assert local_reach == pytest.approx(1.001 * 0.1 * 1e-5 * (1 + 1.9 + 2.71 + 3.439), rel=1e-6)


def test_each_pass_over_the_samples_is_charged_once_and_each_poisson_step() -> None:
    samples, clip, std = np.array([400, 60]), np.array([1.0, 2.0]), np.array([4.0, 8.0])
    one = Step(Scenario()).releases(clip, std, samples)
    for options, steps in (
        ({"steps": 5}, [5, 5]),  # all samples in every step; momentum takes none a second time
        ({"steps": 5, "momentum": 0.9}, [5, 5]),
        ({"steps": 5, "batch": 64}, [1, 5]),
        ({"steps": 7, "batch": 64}, [2, 7]),
        ({"epochs": 3, "batch": 64}, [3, 3]),
        ({"epochs": 3}, [3, 3]),
    ):
        found = sgd(**options).releases(clip, std, samples)
        assert found.steps.tolist() == steps
        assert (found.rate == 1).all()
        assert (found.sensitivity == one.sensitivity).all()
        np.testing.assert_allclose(found.rho, one.rho * steps)
    found = sgd(steps=5, batch=64, sampling="poisson").releases(clip, std, samples)
    assert found.steps.tolist() == [5, 5]
    np.testing.assert_allclose(found.rate, [0.16, 1.0])


@pytest.mark.parametrize(("adjacency", "times"), [("replace_one", 2.0), ("add_remove", 1.0)])
def test_a_whole_device_changes_its_update_by_the_whole_clip(adjacency: str, times: float) -> None:
    samples, clip = np.array([400, 100]), np.array([1.0, 4.0])
    local = Sgd(scenario("device", adjacency, steps=30, batch=64, sampling="poisson"))
    found = local.releases(clip, np.array([4.0, 8.0]), samples)
    assert found.steps.tolist() == [1, 1]
    assert found.rate.tolist() == [1, 1]
    np.testing.assert_allclose(found.sensitivity, times * clip * samples)


def batches_of(local: Sgd, rounds: int, sizes: list[int], purpose: str = "noise") -> list[list[set[int]]]:
    """The samples in the batches of every user, by round: a module-free look at what steps are given."""
    from covey.federated.user_compute import UserCompute

    data = draw_users(sizes, SHAPE, 4)
    data.x[:] = np.arange(len(data.x))[:, None, None, None]
    arrays = vars(data) | {"models": np.zeros((1, 148), np.float32), "movements": np.zeros((1, 148), np.float32)}
    work = UserCompute(module("softmax"), arrays | {"base": np.zeros(148, np.float32)}, 1, Noise(1), local)
    size = local.scenario.training.batch
    found = []
    for number in range(rounds):
        row = []
        for user, samples in enumerate(sizes):
            x, _ = work._poisson_batches(user, number, min(1.0, size / samples), purpose)()
            row.append({int(value) - int(data.offsets[user]) for value in x[:, 0, 0, 0]})
        found.append(row)
    return found


def test_poisson_batches_hold_each_sample_with_its_probability_and_independently() -> None:
    local, rounds = sgd(batch=8, sampling="poisson"), 2000
    drawn = batches_of(local, rounds, [40, 40])
    held = np.zeros((2, rounds, 40))
    for number, row in enumerate(drawn):
        for user, chosen in enumerate(row):
            held[user, number, sorted(chosen)] = 1
    assert np.abs(held.mean(axis=1) - 0.2).max() < 5 * math.sqrt(0.2 * 0.8 / rounds)
    sizes = held.sum(axis=2)
    assert sizes.var() == pytest.approx(40 * 0.2 * 0.8, rel=0.15)  # a fixed size has none
    between = [np.corrcoef(held[0, :, i], held[1, :, j])[0, 1] for i in range(40) for j in (i, (i + 1) % 40)]
    assert np.abs(between).max() < 5 / math.sqrt(rounds)  # users draw apart
    within = np.corrcoef(held[0].T)[~np.eye(40, dtype=bool)]
    assert np.abs(within).max() < 5.5 / math.sqrt(rounds)
    assert batches_of(local, 20, [40], "noise") != batches_of(local, 20, [40], "kmeans_noise")


@pytest.mark.parametrize("unit", ["sample", "device"])
def test_an_empty_batch_releases_noise_alone(unit: str) -> None:
    local, samples = sgd(unit, batch=1, sampling="poisson"), 400
    drawn = (generator(1, "noise_batch", user=0, round=number).random(samples) for number in range(100))
    empty = next(number for number, values in enumerate(drawn) if values.min() >= 1 / samples)
    found, weights = train(local, 1e6, 2.0, sizes=[samples], name="softmax", round=empty)
    noise = 2.0 * Noise(1)(0, empty, "noise", len(weights)) / (samples if unit == "device" else 1)
    np.testing.assert_allclose(found.uploads[0], weights - 0.1 * noise, atol=1e-6)
    assert found.mean_norm[0] == found.clipped_fraction[0] == 0


def test_sums_of_poisson_batches_are_divided_by_the_expected_size() -> None:
    local = sgd(batch=10, sampling="poisson")
    fifth, weights = train(local, 1e6, 0.0, sizes=[50])
    chosen = np.flatnonzero(generator(1, "noise_batch", user=0, round=3).random(50) < 0.2)
    net, (x, y) = module(), own_samples(0, [50])
    load_flat(net, weights)
    loss = functional.cross_entropy(net(x[chosen]), y[chosen], reduction="sum") / 10
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))]).numpy()
    assert len(chosen) != 10
    np.testing.assert_allclose(fifth.uploads[0], weights - 0.1 * gradient, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["training.local=step", "training.steps=5"], 'set training.local = "sgd"'),
        (["training.local=step", "training.momentum=0.5"], "training.momentum is 0.5, but training.local is 'step'"),
        (["training.local=step", "privacy.unit=device"], "privacy.unit is 'device'"),
        (["training.local=examples.parts.two_steps:TwoSteps", "training.steps=5"], "which does not use it"),
        (["training.local=examples.parts.two_steps:TwoSteps", "privacy.unit=device"], "does not protect that"),
        (["training.steps=2", "training.epochs=2"], "one or the other"),
        (["training.sampling=poisson"], "set training.batch"),
        (["training.optimizer=adam", "training.momentum=0.5"], "has its own"),
        (["training.server_momentum=0.5"], "the server 'mean' has none"),
    ],
)
def test_what_would_be_ignored_is_refused(options: list[str], words: str) -> None:
    with pytest.raises(ScenarioError, match=r"^[^\n]*$") as refused:
        covey.simulate(covey.load_scenario("quick", options), rounds=1)
    assert words in str(refused.value)


def test_keys_of_several_steps_choose_sgd_where_no_training_is_named() -> None:
    for option in ("training.steps=5", "training.optimizer=adam", "privacy.unit=device"):
        assert covey.load_scenario("quick", [option]).training.local == "sgd"
    for option in ("training.steps=1", "training.batch=5", "training.schedule=cosine"):
        assert covey.load_scenario("quick", [option]).training.local == "step"


def test_schedules_change_the_learning_rate_over_the_planned_rounds() -> None:
    def rates(schedule: str) -> list[float]:
        local = Step(Scenario(training={"rounds": 8, "learning_rate": 2.0, "schedule": schedule}))
        return [local.at(number).learning_rate for number in range(10)]

    assert rates("constant") == [2.0] * 10
    np.testing.assert_allclose(rates("step"), [2] * 4 + [0.2] * 2 + [0.02] * 4)
    np.testing.assert_allclose(rates("cosine"), [1 + math.cos(math.pi * min(t, 7) / 8) for t in range(10)])
    local = Step(Scenario(training={"rounds": 8, "schedule": "step"}))
    late, ones, samples = local.at(7), np.ones(1), np.array([100])
    assert late.upload_noise(ones, samples)[0] == pytest.approx(0.01 * local.upload_noise(ones, samples)[0])
    assert late.reach(ones, samples, ones, 10)[0] < local.reach(ones, samples, ones, 10)[0]


def test_two_workers_have_the_bits_of_one() -> None:
    for local in (
        sgd(steps=4, batch=10, sampling="poisson", momentum=0.9),
        sgd("device", steps=4, batch=10, optimizer="adam"),
    ):
        one, two = train(local, 0.5, 1.0), train(local, 0.5, 1.0, workers=2)
        for name, values in vars(one[0]).items():
            assert getattr(two[0], name).tobytes() == values.tobytes(), name
