"""The real mechanism as one call, and broken copies of it that an audit has to catch.

Every broken one wraps the real one or its parts, says in its name what is wrong, and declares what
the real one declares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from covey.data import load_dataset
from covey.federated import Engine, build_model, clipped_gradient_sum, load_flat, noised_step
from covey.federated.per_sample import looped_gradients
from covey.privacy import sensitivity
from covey.privacy.audit import Declared, Source
from covey.scenario import load_scenario

#: Samples (n, 1, 8, 8) and classes (n,) of one user.
Samples = tuple[np.ndarray, np.ndarray]
Release = Mapping[str, np.ndarray]

CLIP, NOISE_STD, LEARNING_RATE, COUNT = 1.0, 1.0, 0.01, 20
#: Weights of a softmax model of 64 pixels and 10 classes.
WEIGHTS = 650
#: One sample replaced: 2 C / std.
MU = float(sensitivity(CLIP)) / NOISE_STD
#: A step is learning_rate / n times the noised sum, and that is what is released.
UNIT = LEARNING_RATE / COUNT
DECLARED = {"upload": Declared(UNIT * float(sensitivity(CLIP)), UNIT * NOISE_STD)}


@dataclass(frozen=True)
class Users:
    x: np.ndarray
    y: np.ndarray
    offsets: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    test_offsets: np.ndarray


def joined(users: Sequence[Samples]) -> Users:
    x, y = (np.concatenate([user[part] for user in users]) for part in (0, 1))
    offsets = np.concatenate([[0], np.cumsum([len(user[1]) for user in users])])
    return Users(x, y, offsets, x[:1].repeat(len(users), 0), y[:1].repeat(len(users)), np.arange(len(users) + 1))


@cache
def digits() -> Samples:
    scenario = load_scenario("quick")
    dataset = load_dataset(scenario.data, groups=scenario.groups, seed=0)
    return dataset.normalise(dataset.x), dataset.y


@cache
def module() -> nn.Module:
    return build_model(load_scenario("quick").model, (1, 8, 8), 10)


def start() -> np.ndarray:
    """Weights of 0: all classes are equally likely, so that mirrored samples have opposite gradients."""
    return np.zeros(WEIGHTS, np.float32)


def own_samples(count: int = COUNT) -> Samples:
    x, y = digits()
    return x[:count].copy(), y[:count].copy()


def replaced(samples: Samples, x: np.ndarray | float, y: int = 0, row: int = 0) -> Samples:
    """The samples with one replaced: by an image, or by one that is the same value everywhere."""
    new_x, new_y = samples[0].copy(), samples[1].copy()
    new_x[row], new_y[row] = x, y
    return new_x, new_y


def mirrored_pair(samples: Samples) -> tuple[Samples, Samples]:
    """Neighbours whose clipped sums are as far apart as they can be: one bright sample and its negative."""
    bright = 4.0 * np.ones((1, 8, 8), np.float32)
    return replaced(samples, bright), replaced(samples, -bright)


def device(
    samples: Samples, noise: Source, *, rounds: int = 1, batch: int = 0, public_size: int | None = None
) -> Release:
    """What one user really sends: (rounds, D) uploads of rounds that all start from `start`.

    `public_size` is the number of samples that everybody was told; that of `samples` when not given.
    """
    sizes = None if public_size is None else np.array([public_size])
    return {"upload": fleet([samples], noise, rounds=rounds, batch=batch, sizes=sizes)["upload"][:, 0]}


def fleet(
    users: Sequence[Samples],
    noise: Source,
    *,
    rounds: int = 1,
    batch: int = 0,
    sizes: np.ndarray[Any, np.dtype[np.int64]] | None = None,
) -> Release:
    """What several users really send, (rounds, U, D)."""
    everyone, clip, noise_std = np.arange(len(users)), np.full(len(users), CLIP), np.full(len(users), NOISE_STD)
    given = {"learning_rate": LEARNING_RATE, "batch": batch, "base": start(), "sizes": sizes}
    with Engine(module(), joined(users), tasks=1, seed=0, noise=noise) as engine:
        results = [engine.train(number, everyone, None, clip, noise_std, **given) for number in range(rounds)]
    return {"upload": np.stack([result.uploads for result in results])}


def noise_halved(samples: Samples, noise: Source, *, rounds: int = 1) -> Release:
    return device(samples, lambda *request: noise(*request) / 2, rounds=rounds)


def noise_in_float32(samples: Samples, noise: Source, *, rounds: int = 1) -> Release:
    return device(samples, lambda *request: noise(*request).astype(np.float32).astype(np.float64), rounds=rounds)


def seed_shared_by_users(users: Sequence[Samples], noise: Source, *, rounds: int = 1) -> Release:
    return fleet(users, lambda _, *request: noise(0, *request), rounds=rounds)


def seed_shared_by_rounds(users: Sequence[Samples], noise: Source, *, rounds: int = 1) -> Release:
    return fleet(users, lambda user, _, *request: noise(user, 0, *request), rounds=rounds)


def whole_gradient_clipped(samples: Samples, noise: Source, *, rounds: int = 1) -> Release:
    """The sum is cut to n C, not every sample to C."""
    x, y = tensors(samples)
    load_flat(module(), start())
    total = clipped_gradient_sum(module(), x, y, math.inf).total.numpy()
    return noised(total * min(1.0, CLIP * len(x) / float(np.linalg.norm(total))), noise, rounds)


def bad_samples_kept(samples: Samples, noise: Source, *, rounds: int = 1) -> Release:
    """Gradients that are not finite stay in the sum."""
    x, y = tensors(samples)
    load_flat(module(), start())
    rows = looped_gradients(module(), x, y)[0].double()
    total = torch.clamp(CLIP / rows.norm(dim=1), max=1.0) @ rows
    return noised(total.numpy(), noise, rounds)


def noised(total: np.ndarray, noise: Source, rounds: int) -> Release:
    """The rest of the real step, for mutants that clip in their own way."""
    drawn = np.stack([noise(0, number, "noise", WEIGHTS) for number in range(rounds)])
    return {"upload": (start() - UNIT * (total + NOISE_STD * drawn)).astype(np.float32)}


def tensors(samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(samples[0]), torch.from_numpy(samples[1])


def noised_per_mini_batch(samples: Samples, noise: Source, *, epochs: int = 4, repeat: int = 0) -> Release:
    """Two noised steps per epoch on half of the samples each, all of them sent, and charged once."""
    x, y = tensors(samples)
    half, weights, uploads = len(x) // 2, start(), []
    for step in range(2 * epochs):
        part = slice(0, half) if step % 2 == 0 else slice(half, None)
        drawn = NOISE_STD * noise(0, 2 * epochs * repeat + step, "noise", WEIGHTS)
        weights = noised_step(
            module(), weights, x[part], y[part], clip=CLIP, noise=drawn, learning_rate=LEARNING_RATE / 2
        ).weights
        uploads.append(weights)
    return {"upload": np.diff(np.stack([start(), *uploads]), axis=0)}


def resent_with_new_noise(samples: Samples, noise: Source, *, copies: int = 4, repeat: int = 0) -> Release:
    """The same update several times, each time with noise of its own, charged once."""
    return device(samples, lambda user, copy, *rest: noise(user, copies * repeat + copy, *rest), rounds=copies)


def loss_beside_the_upload(samples: Samples, noise: Source) -> Release:
    """The mean loss, neither clipped nor noised, leaves with the upload."""
    x, y = tensors(samples)
    load_flat(module(), np.linspace(-0.1, 0.1, WEIGHTS, dtype=np.float32))
    with torch.no_grad():
        loss = nn.functional.cross_entropy(module()(x), y).numpy()
    return {**device(samples, noise), "loss": loss}


def quiet_on_easy_data(samples: Samples, noise: Source) -> Release:
    """Noise is left out when the samples are dim, so that its absence tells."""
    dim = float(np.abs(samples[0]).max()) < 3.0
    return device(samples, (lambda *request: np.zeros(request[-1])) if dim else noise)
