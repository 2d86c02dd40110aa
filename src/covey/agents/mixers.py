"""Mixers of stations' values into the team value: none (IQL), sum (value decomposition), or monotone (QMIX)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

MixerName = Literal["none", "sum", "qmix"]


class Independent(nn.Module):
    """Every station learns its own value: (N, B) in, (N, B) out."""

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """The stations' values as they are."""
        return values


class Sum(nn.Module):
    """The team's value is the sum of the stations', Eq. (33): (N, B) in, (N, 1) out."""

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """The sum over stations."""
        return values.sum(dim=-1, keepdim=True)


class MonotoneNetwork(nn.Module):
    """A mixing network with non-negative weights from a hypernetwork of the state, as in QMIX: (N, B) in, (N, 1) out.

    The team's value is monotone in each station's value, so the stations' greedy actions are also the team's.
    """

    def __init__(self, stations: int, state_size: int, width: int = 32, hidden: int = 64) -> None:
        super().__init__()
        self.width = width
        self.first = nn.Sequential(nn.Linear(state_size, hidden), nn.ReLU(), nn.Linear(hidden, stations * width))
        self.first_bias = nn.Linear(state_size, width)
        self.second = nn.Sequential(nn.Linear(state_size, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.base = nn.Sequential(nn.Linear(state_size, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """The team's value of the stations' values in this state (N, S)."""
        count, stations = values.shape
        first = self.first(state).abs().view(count, stations, self.width)
        code = functional.elu(torch.bmm(values.unsqueeze(1), first).squeeze(1) + self.first_bias(state))
        mixed = (code * self.second(state).abs()).sum(dim=-1, keepdim=True)
        return torch.as_tensor(mixed + self.base(state))


def build_mixer(name: MixerName, stations: int, state_size: int) -> nn.Module:
    """The mixer of this name."""
    if name == "none":
        return Independent()
    if name == "sum":
        return Sum()
    return MonotoneNetwork(stations, state_size)
