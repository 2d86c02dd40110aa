"""Data and noise of a few users; at the top level of a file, so that worker processes can import it."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from covey.seeding import generator


@dataclass(frozen=True)
class Users:
    x: np.ndarray
    y: np.ndarray
    offsets: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    test_offsets: np.ndarray


def draw_users(sizes: list[int], shape: tuple[int, ...], classes: int, test: int = 3) -> Users:
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    held_out = np.arange(len(sizes) + 1) * test
    return Users(
        rng.standard_normal((offsets[-1], *shape)).astype(np.float32),
        rng.integers(classes, size=offsets[-1]),
        offsets,
        rng.standard_normal((held_out[-1], *shape)).astype(np.float32),
        rng.integers(classes, size=held_out[-1]),
        held_out,
    )


@dataclass(frozen=True)
class Noise:
    """Seeded noise; purposes "fail" and "die" do what they say to whoever draws for user 1."""

    seed: int = 0

    def __call__(self, user: int, round: int, purpose: str, size: int) -> np.ndarray:
        if user == 1 and purpose == "fail":
            raise ValueError("there is no noise for user 1")
        if user == 1 and purpose == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return generator(self.seed, "noise", user=user, round=round).standard_normal(size)


class Own(nn.Module):
    """A researcher's own module, which needs the slow strategy."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.flatten(1))) * self.scale
