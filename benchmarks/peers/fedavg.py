"""The common workload of the learning rounds: clients with CIFAR-shaped samples, and the paper's CNN.

Samples and initial weights come from NumPy's generators, so that they are the same in every virtual environment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

SHAPE, CLASSES, SAMPLES, LEARNING_RATE = (3, 32, 32), 10, 100, 0.05
#: Shape of the weights and fan-in of each layer.
_LAYERS = (((32, 3, 3, 3), 27), ((64, 32, 3, 3), 288), ((128, 4096), 4096), ((64, 128), 128), ((10, 64), 64))


def client(number: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Samples (100, 3, 32, 32) and classes (100,) of a client."""
    rng = np.random.default_rng([7, number])
    return rng.standard_normal((SAMPLES, *SHAPE), dtype=np.float32), rng.integers(CLASSES, size=SAMPLES)


def first_weights(models: int) -> NDArray[np.float32]:
    """Initial weights, (models, 552714), in the order of `network().parameters()`."""
    rng = np.random.default_rng(11)
    rows = []
    for _ in range(models):
        parts = []
        for shape, inputs in _LAYERS:
            parts += [rng.standard_normal(shape).ravel() / np.sqrt(inputs), np.zeros(shape[0])]
        rows.append(np.concatenate(parts))
    return np.array(rows, dtype=np.float32)


def network() -> nn.Module:
    """The paper's CNN in plain PyTorch."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def fill(module: nn.Module, weights: NDArray[np.float32]) -> None:
    """Load a flat weight vector into a network."""
    with torch.no_grad():
        nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), module.parameters())


def flat(module: nn.Module) -> NDArray[np.float32]:
    """The weights of a network as a flat vector."""
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()


def tensors(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`client` as tensors."""
    x, y = client(number)
    return torch.from_numpy(x), torch.from_numpy(y)


def descend(module: nn.Module, x: torch.Tensor, y: torch.Tensor, batch: int) -> None:
    """One pass over the samples in batches of `batch`, by plain SGD."""
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    for part_x, part_y in zip(torch.split(x, batch), torch.split(y, batch), strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(part_x), part_y).backward()
        optimizer.step()


def best_task(modules: list[nn.Module], x: torch.Tensor, y: torch.Tensor) -> int:
    """The model with the smallest loss on all samples."""
    with torch.no_grad():
        return int(np.argmin([nn.functional.cross_entropy(module(x), y).item() for module in modules]))


def moved(new: Any, old: Any) -> float:
    """Distance between two sets of weights; the same for all contestants whose batches are the same."""
    return float(np.linalg.norm(np.asarray(new, dtype=np.float64) - np.asarray(old, dtype=np.float64)))
