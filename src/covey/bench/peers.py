"""The baselines of the benchmarks: a round as a plain PyTorch loop, and a private step by Opacus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from covey.data import UserData
from covey.federated import flatten
from covey.seeding import generator


@dataclass(frozen=True)
class Step:
    """Settings of a local step, shared by both sides."""

    clip: float
    noise_std: float
    learning_rate: float
    batch: int
    seed: int


class PlainLoop:
    """A straightforward round: a module per task, a loop over users, full batches."""

    def __init__(
        self,
        data: UserData,
        weights: NDArray[np.float32],
        movements: NDArray[np.float32],
        identities: NDArray[np.int64],
    ) -> None:
        self.modules = []
        for row in weights:
            module = conventional_cnn()
            nn.utils.vector_to_parameters(torch.from_numpy(row), module.parameters())
            self.modules.append(module)
        self.movements = torch.from_numpy(movements)
        self.identities = identities
        self.train = _by_user(data.x, data.y, data.offsets)
        self.test = _by_user(data.test_x, data.test_y, data.test_offsets)

    def play(self, step: Step, *, clipped: bool) -> list[NDArray[Any]]:
        """Losses and similarity (U, K), uploads (U, D), and training and test loss sums (U,)."""
        losses, similarity = self._score(step)
        uploads = np.stack([self._step(user, step, clipped) for user in range(len(self.train))])
        return [losses, similarity, uploads, self._evaluate(self.train), self._evaluate(self.test)]

    def _score(self, step: Step) -> tuple[NDArray[Any], NDArray[Any]]:
        losses = np.zeros((len(self.train), len(self.modules)))
        similarity = np.zeros_like(losses)
        for user, (all_x, all_y) in enumerate(self.train):
            order = generator(step.seed, "identify_batch", user=user, round=1).permutation(len(all_y))
            x, y = all_x[order[: step.batch]], all_y[order[: step.batch]]
            for task, module in enumerate(self.modules):
                loss = functional.cross_entropy(module(x), y)
                gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
                losses[user, task] = loss.item()
                similarity[user, task] = functional.cosine_similarity(-gradient, self.movements[task], dim=0).item()
        return losses, similarity

    def _step(self, user: int, step: Step, clipped: bool) -> NDArray[np.floating]:
        module = self.modules[self.identities[user]]
        x, y = self.train[user]
        if clipped:
            total = _mapped_clipped_sum(module, x, y, step.clip)
        else:
            loss = functional.cross_entropy(module(x), y, reduction="sum")
            total = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
        if step.noise_std:
            total += step.noise_std * torch.randn(len(total), generator=torch.Generator().manual_seed(user))
        return flatten(module) - np.float32(step.learning_rate / len(y)) * total.numpy()

    def _evaluate(self, half: list[tuple[Tensor, Tensor]]) -> NDArray[np.float64]:
        with torch.no_grad():
            return np.array(
                [
                    functional.cross_entropy(self.modules[task](x), y, reduction="sum").item()
                    for task, (x, y) in zip(self.identities, half, strict=True)
                ]
            )


def conventional_cnn() -> nn.Module:
    """The paper's CNN with the layers in their usual order, and the same parameters as `build_model` makes."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4096, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def opacus_step(
    opacus: Any,
    weights: NDArray[np.float32],
    x: Tensor,
    y: Tensor,
    clip: float,
    *,
    channels_last: bool,
    threads: int,
    noise_multiplier: float = 1.0,
) -> Callable[[], nn.Module]:
    """A function that runs one private step by Opacus and returns the module with its gradients."""
    module = conventional_cnn()
    nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), module.parameters())
    if channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.contiguous(memory_format=torch.channels_last)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(x))
    private, optimizer, criterion, _ = opacus.PrivacyEngine().make_private(
        module=module,
        # A learning rate of 0 keeps the weights, so that every repeat does the same work.
        optimizer=torch.optim.SGD(module.parameters(), lr=0.0),
        criterion=nn.CrossEntropyLoss(),
        data_loader=loader,
        noise_multiplier=noise_multiplier,
        max_grad_norm=clip,
        grad_sample_mode="ghost",
        poisson_sampling=False,
    )

    def step() -> nn.Module:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        optimizer.zero_grad()
        criterion(private(x), y).backward()
        optimizer.step()
        torch.set_num_threads(before)
        return module

    return step


def _mapped_clipped_sum(module: nn.Module, x: Tensor, y: Tensor, clip: float, chunk: int = 32) -> Tensor:
    """Sum of clipped gradients by `torch.func`, in chunks."""
    weights = {name: p.detach() for name, p in module.named_parameters()}

    def loss(values: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(torch.func.functional_call(module, values, (image[None],)), label[None])

    gradient = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    total = torch.zeros(sum(w.numel() for w in weights.values()))
    for part_x, part_y in zip(torch.split(x, chunk), torch.split(y, chunk), strict=True):
        found = gradient(weights, part_x, part_y)
        squares = sum(g.flatten(1).square().sum(1) for g in found.values())
        factors = (clip / squares.sqrt()).clamp(max=1.0)
        total += torch.cat([factors @ found[name].flatten(1) for name in weights])
    return total


def _by_user(x: NDArray[np.float32], y: NDArray[np.int64], offsets: NDArray[np.int64]) -> list[tuple[Tensor, Tensor]]:
    sizes = np.diff(offsets).tolist()
    return list(zip(torch.split(torch.from_numpy(x), sizes), torch.split(torch.from_numpy(y), sizes), strict=True))
