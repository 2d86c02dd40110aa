"""Speed of learning, compared with a plain PyTorch loop, Opacus and the machine's peak.

Both sides of a comparison are interleaved, in the same minutes and on the same arrays; read the ratios,
which come with their interval over the repeats.
"""

from __future__ import annotations

import importlib
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from covey.bench.peers import PlainLoop, Step, conventional_cnn, opacus_step
from covey.bench.timing import all_cores, cores, interleaved, interval, ratio
from covey.data import UserData
from covey.federated import (
    Engine,
    aggregate_models,
    build_model,
    clipped_gradient_sum,
    initial_weights,
    noised_step,
    one_thread,
)
from covey.privacy import ReplayNoise
from covey.scenario.schema import Model

_CIFAR = (3, 32, 32)
_CLASSES = 10


def round_vs_plain_loop(
    users: int = 12,
    samples: int = 400,
    test_samples: int = 100,
    tasks: int = 4,
    batch: int = 64,
    workers: int = 2,
    repeats: int = 5,
    seed: int = 0,
) -> dict[str, Any]:
    """One learning round of the paper's CNN by `Engine` against the same round as a loop over users and tasks.

    A round scores every task with gradients on a batch of every user, trains all users on all their
    samples with clipping and noise, and evaluates all users. The loop is plain PyTorch with its default
    threads (all cores) and memory layout; once with `torch.func.vmap` for the clipping, and once without clipping.
    """
    data = _random_users(users, samples, test_samples, _CIFAR, seed)
    module = build_model(Model(name="cnn"), _CIFAR, _CLASSES)
    weights = initial_weights(module, tasks, seed)
    movements = 1e-3 * np.random.default_rng(seed).standard_normal(weights.shape, dtype=np.float32)
    identities = np.arange(users) % tasks
    step = Step(clip=3.0, noise_std=math.sqrt(12.0), learning_rate=0.03, batch=batch, seed=seed)
    loop = PlainLoop(data, weights, movements, identities)
    with Engine(module, data, tasks=tasks, workers=workers, seed=seed, noise=ReplayNoise(seed)) as engine:
        engine.publish(weights, movements)

        def ours(step: Step = step) -> list[NDArray[Any]]:
            everyone = np.arange(users)
            scores = engine.score(1, batch=batch, gradients=True)
            clip, std = np.full(users, step.clip), np.full(users, step.noise_std)
            trained = engine.train(1, everyone, identities, clip, std, learning_rate=step.learning_rate, batch=0)
            evaluated = engine.evaluate(identities)
            return [*scores, trained.uploads, evaluated.train_loss_sum, evaluated.test_loss_sum]

        def plain(*, clipped: bool) -> None:
            with all_cores():
                loop.play(step, clipped=clipped)

        quiet = Step(step.clip, 0.0, step.learning_rate, batch, seed)
        differences = _relative_differences(ours(quiet), loop.play(quiet, clipped=True), weights[identities])
        times = interleaved(
            {
                "covey": ours,
                "plain_clipped": lambda: plain(clipped=True),
                "plain_unclipped": lambda: plain(clipped=False),
            },
            repeats,
        )
    passes = users * tasks * batch + 2 * users * samples + users * test_samples
    return {
        "users": users,
        "samples_per_user": samples,
        "workers": workers,
        "plain_threads": cores(),
        "samples_per_s": {name: passes / statistics.median(values) for name, values in times.items()},
        "times_faster_than_plain_clipped": ratio(times["plain_clipped"], times["covey"]),
        "times_faster_than_plain_unclipped": ratio(times["plain_unclipped"], times["covey"]),
        "largest_relative_difference": differences,
    }


def clip_vs_opacus(batch: int = 256, repeats: int = 9, clip: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """A whole private step of the paper's CNN on one batch against Opacus' ghost clipping. Needs Opacus.

    Ours has one thread. Opacus has one and two, in the default memory layout and with channels last;
    `times_faster` compares with its fastest configuration with one thread,
    `times_faster_than_two_threads` with its fastest with two.
    """
    opacus: Any = importlib.import_module("opacus")
    x, y = _random_batch(batch, seed)
    module = build_model(Model(name="cnn"), _CIFAR, _CLASSES)
    weights = initial_weights(module, 1, seed)[0]
    rng = np.random.default_rng(seed)

    def ours() -> None:
        with one_thread():
            noise = rng.standard_normal(len(weights))
            noised_step(module, weights, x, y, clip=clip, noise=noise, learning_rate=0.03)

    ways = {f"{layout}_{threads}": (layout, threads) for layout in ("default", "channels_last") for threads in (1, 2)}
    peers = {
        name: opacus_step(opacus, weights, x, y, clip, channels_last=layout == "channels_last", threads=threads)
        for name, (layout, threads) in ways.items()
    }
    difference = _opacus_difference(opacus, module, weights, x, y, clip)
    times = interleaved({"covey": ours, **peers}, repeats)
    best = {
        threads: min(
            (name for name in ways if ways[name][1] == threads), key=lambda name: statistics.median(times[name])
        )
        for threads in (1, 2)
    }
    return {
        "batch": batch,
        "samples_per_s": {name: batch / statistics.median(values) for name, values in times.items()},
        "times_faster": ratio(times[best[1]], times["covey"]),
        "times_faster_than_two_threads": ratio(times[best[2]], times["covey"]),
        "relative_difference_of_clipped_sums": difference,
    }


def matmul_fraction(batch: int = 256, repeats: int = 9, size: int = 1024, seed: int = 0) -> dict[str, Any]:
    """Share of this machine's float32 matrix-product speed that the clipped gradient of the CNN reaches.

    One thread; only the multiplications that a plain forward and backward pass needs are counted.
    """
    x, y = _random_batch(batch, seed)
    module = build_model(Model(name="cnn"), _CIFAR, _CLASSES)
    square = torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
    plain = conventional_cnn().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    image = x.contiguous(memory_format=torch.channels_last)
    parameters = list(plain.parameters())

    def backward() -> None:
        for part_x, part_y in zip(torch.split(image, 32), torch.split(y, 32), strict=True):
            torch.autograd.grad(functional.cross_entropy(plain(part_x), part_y), parameters)

    with one_thread():
        times = interleaved(
            {
                "clipped": lambda: clipped_gradient_sum(module, x, y, 1.0),
                "product": lambda: square @ square,
                "plain_backward": backward,
            },
            repeats,
        )
    flops = batch * _training_flops(module, x[:1])
    reached = [flops / second for second in times["clipped"]]
    peak = [2 * size**3 / second for second in times["product"]]
    return {
        "batch": batch,
        "gflop_per_sample": flops / batch / 1e9,
        "peak_gflop_per_s": statistics.median(peak) / 1e9,
        "clipped_gflop_per_s": statistics.median(reached) / 1e9,
        "fraction_of_peak": interval([a / b for a, b in zip(reached, peak, strict=True)]),
        "samples_per_s": {name: batch / statistics.median(times[name]) for name in ("clipped", "plain_backward")},
        "speed_against_plain_backward": ratio(times["plain_backward"], times["clipped"]),
    }


def round_profile(
    users: int = 12, samples: int = 100, repeats: int = 9, size: int = 1024, seed: int = 0
) -> dict[str, Any]:
    """Profile of a training round of the CNN on one thread, and its share of the machine's peak.

    `parts` are shares of CPU time by kernel; `of_peak` counts the operations that a plain forward and
    backward pass needs, relative to the speed of an interleaved matrix product.
    """
    data = _random_users(users, samples, 1, _CIFAR, seed)
    module = build_model(Model(name="cnn"), _CIFAR, _CLASSES)
    weights = initial_weights(module, 1, seed)
    everyone, tasks, sizes = np.arange(users), np.zeros(users, np.int64), np.full(users, samples)
    square = torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
    with Engine(module, data, tasks=1, workers=1, seed=seed, noise=ReplayNoise(seed)) as engine, one_thread():

        def play() -> None:
            engine.publish(weights, weights)
            clip, std = np.full(users, 3.0), np.zeros(users)
            trained = engine.train(1, everyone, tasks, clip, std, learning_rate=0.05, batch=0)
            aggregate_models(trained.uploads, tasks, tasks, sizes, weights, 1)

        times = interleaved({"round": play, "product": lambda: square @ square}, repeats)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            started = time.perf_counter()
            play()
            whole = time.perf_counter() - started
    flops = users * samples * _training_flops(module, torch.from_numpy(data.x[:1]))
    kernels = sorted(profile.key_averages(), key=lambda event: -event.self_cpu_time_total)[:8]
    shares = {event.key.removeprefix("aten::"): 1e-6 * event.self_cpu_time_total / whole for event in kernels}
    return {
        "users": users,
        "samples_per_user": samples,
        "parts": shares | {"everything else": 1.0 - sum(shares.values())},
        "of_peak": interval(
            [
                flops / second / (2 * size**3 / product)
                for second, product in zip(times["round"], times["product"], strict=True)
            ]
        ),
    }


def growth(
    users: Sequence[int] = (12, 120, 1200),
    tasks: Sequence[int] = (2, 4, 8),
    samples: int = 80,
    batch: int = 64,
    workers: int = 1,
    repeats: int = 3,
    seed: int = 0,
) -> dict[str, Any]:
    """Seconds per learning round of a small model over the number of users (4 tasks) and of tasks (120 users).

    A third of the users trains. `exponent` is the scaling exponent since the row before, 1 if linear.
    """
    by_users = [(count, 4) for count in users]
    by_tasks = [(120, count) for count in tasks]
    rows: dict[str, list[dict[str, Any]]] = {"over_users": [], "over_tasks": []}
    for key, sizes, axis in (("over_users", by_users, "users"), ("over_tasks", by_tasks, "tasks")):
        for user_count, task_count in sizes:
            seconds = _small_round_s(user_count, task_count, samples, batch, workers, repeats, seed)
            row: dict[str, Any] = {"users": user_count, "tasks": task_count, "seconds": seconds}
            if rows[key]:
                before = rows[key][-1]
                row["exponent"] = math.log(seconds / before["seconds"]) / math.log(row[axis] / before[axis])
            rows[key].append(row)
    return {"samples_per_user": samples, "batch": batch, "workers": workers, **rows}


def _small_round_s(users: int, tasks: int, samples: int, batch: int, workers: int, repeats: int, seed: int) -> float:
    shape = (1, 8, 8)
    data = _random_users(users, samples, 20, shape, seed)
    module = build_model(Model(name="softmax"), shape, _CLASSES)
    weights = initial_weights(module, tasks, seed)
    identities, trained = np.arange(users) % tasks, np.arange(0, users, 3)
    ones = np.ones(len(trained))
    with Engine(module, data, tasks=tasks, workers=workers, seed=seed, noise=ReplayNoise(seed)) as engine:
        engine.publish(weights, weights)

        def play() -> None:
            engine.score(1, batch=batch, gradients=True)
            engine.train(1, trained, identities[trained], ones, ones, learning_rate=0.1, batch=0)
            engine.evaluate(identities)

        return statistics.median(interleaved({"round": play}, repeats)["round"])


def _opacus_difference(
    opacus: Any, module: nn.Module, weights: NDArray[np.float32], x: Tensor, y: Tensor, clip: float
) -> float:
    """Relative difference between our sum of clipped gradients and that of Opacus without noise."""
    peer = opacus_step(opacus, weights, x, y, clip, channels_last=False, threads=1, noise_multiplier=0.0)()
    theirs = torch.cat([p.grad.flatten() for p in peer.parameters() if p.grad is not None]).double() * len(x)
    nn.utils.vector_to_parameters(torch.from_numpy(weights), module.parameters())
    ours = clipped_gradient_sum(module, x, y, clip).total
    return float((ours - theirs).norm() / theirs.norm())


def _training_flops(module: nn.Module, sample: Tensor) -> float:
    """Multiplications and additions of one sample's forward and backward pass in layers with weights."""
    forward: list[float] = []

    def count(layer: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        forward.append(2.0 * weight[0].numel() * outputs.numel())

    layers = [layer for layer in module.modules() if isinstance(layer, (nn.Linear, nn.Conv2d))]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        module(sample)
    for hook in hooks:
        hook.remove()
    # Outputs, weight gradients and input gradients cost the same; the first layer has no input gradient.
    return 3 * sum(forward) - forward[0]


def _random_users(users: int, samples: int, test_samples: int, shape: tuple[int, ...], seed: int) -> UserData:
    rng = np.random.default_rng(seed)
    offsets, held_out = np.arange(users + 1) * samples, np.arange(users + 1) * test_samples
    return UserData(
        x=rng.standard_normal((offsets[-1], *shape), dtype=np.float32),
        y=rng.integers(_CLASSES, size=offsets[-1]),
        offsets=offsets,
        test_x=rng.standard_normal((held_out[-1], *shape), dtype=np.float32),
        test_y=rng.integers(_CLASSES, size=held_out[-1]),
        test_offsets=held_out,
        groups=np.zeros(users, dtype=np.int64),
        classes=tuple(str(c) for c in range(_CLASSES)),
    )


def _random_batch(batch: int, seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(batch, *_CIFAR, generator=draw), torch.randint(_CLASSES, (batch,), generator=draw)


def _relative_differences(
    ours: list[NDArray[Any]], plain: list[NDArray[Any]], start: NDArray[np.float32]
) -> dict[str, float]:
    """Norm of the difference of each result over its norm; of uploads, over the norm of the local movement."""
    names = ("losses", "similarity", "uploads", "train_loss", "test_loss")
    norms = [
        np.linalg.norm(values - start if name == "uploads" else values)
        for name, values in zip(names, plain, strict=True)
    ]
    return {
        name: float(np.linalg.norm(a - b) / norm) for name, a, b, norm in zip(names, ours, plain, norms, strict=True)
    }
