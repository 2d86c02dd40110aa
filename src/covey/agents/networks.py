"""Value networks: one value per user (`AdditiveHead`) or one per subset of users (`SubsetHead`).

Both give, for N networks of B stations, the value of a selection, the greedy selection, and the utility of each user.
Features are (N, B, U, F), selections (N, B, U).

Values have C parts: the gain of a selection when stations decide alone, its violations then, and its gain behind the
guard, where the additive head distinguishes the first user of a task from further ones. `price` is the cost of a
violation in units of gain, `caution` the minimal gain of a further user. With C = 1 one value includes all of it.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from covey.environment import subset_numbers, subsets

#: Parts of a value: gain alone, violations alone, gain behind the guard; the additive head adds that of being first.
ALONE, VIOLATION, GUARDED, FIRST = range(4)


class Head(Protocol):
    """Interface of a value network."""

    price: Tensor
    caution: Tensor

    def value(self, features: Tensor, selected: Tensor, first: Tensor) -> Tensor:
        """(N, B, C): the parts of the value of each station's selection; first: (N, B, U) first users of a task."""
        ...

    def best(self, features: Tensor, eligible: Tensor) -> Tensor:
        """(N, B, U) bool: each station's selection of highest value, among eligible users and of at most R."""
        ...

    def utilities(self, features: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
        """(N, B, U) twice: the gain of serving each user behind the guard as the first of its task, and as a further
        one; -inf excludes the user."""
        ...


def initialise(module: nn.Module, rng: np.random.Generator) -> None:
    """Draw all weights from `rng`: uniform in +-1/sqrt(inputs), PyTorch's default."""
    for name, parameter in module.named_parameters():
        bound = 1.0 / math.sqrt(parameter.shape[-2] if name.endswith("stack") else parameter.shape[-1])
        values = rng.uniform(-bound, bound, tuple(parameter.shape)).astype(np.float32)
        parameter.data.copy_(torch.from_numpy(values))


def combine(parts: Tensor, price: Tensor) -> Tensor:
    """Value of a selection for stations that decide alone, from its parts (..., C)."""
    return parts[..., 0] if parts.shape[-1] == 1 else parts[..., 0] - price * parts[..., 1]


class AdditiveHead(nn.Module):
    """A value per user, with weights shared by users and stations; a selection's value is its users' sum plus a base.

    Each user is encoded alone; its value also depends on the mean and maximum of all users' embeddings (a deep set),
    so the head is permutation-equivariant and takes any number of users. `base` is the value of the empty selection.
    """

    price: Tensor
    caution: Tensor

    def __init__(self, inputs: int, hidden: int, blocks: int, parts: int) -> None:
        super().__init__()
        self.blocks, self.parts = blocks, parts
        self.register_buffer("price", torch.ones(()))
        self.register_buffer("caution", torch.zeros(()))
        outputs = 1 if parts == 1 else parts + 1
        self.encode = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.score_user = nn.Linear(hidden, hidden)
        self.score_all = nn.Linear(2 * hidden, hidden)
        self.score = nn.Linear(hidden, outputs)
        self.base = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Values of users (N, B, U, C or C + 1) and of the empty selection (N, B, ...)."""
        code = self.encode(features)
        everyone = torch.cat([code.mean(dim=-2), code.amax(dim=-2)], dim=-1)
        mixed = functional.relu(self.score_user(code) + self.score_all(everyone).unsqueeze(-2))
        return self.score(mixed), self.base(everyone)

    def value(self, features: Tensor, selected: Tensor, first: Tensor) -> Tensor:
        """(N, B, C): base plus the values of the selected users."""
        values, base = self(features)
        total = base + (values * selected.unsqueeze(-1)).sum(dim=-2)
        if self.parts == 1:
            return torch.as_tensor(total)
        # The last part is the extra gain of a first user over a further one.
        bonus = (values[..., FIRST] * first).sum(dim=-1)
        guarded = total[..., GUARDED] + bonus
        return torch.stack([total[..., ALONE], total[..., VIOLATION], guarded], dim=-1)

    def best(self, features: Tensor, eligible: Tensor) -> Tensor:
        """(N, B, U) bool: the R eligible users of highest positive value."""
        values, _ = self(features)
        return top(combine(values, self.price).masked_fill(~eligible, -math.inf), self.blocks)

    def utilities(self, features: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
        """(N, B, U) twice: gain of each eligible user behind the guard, as the first of its task and as another."""
        values, _ = self(features)
        if self.parts == 1:
            same = values[..., 0].masked_fill(~eligible, -math.inf)
            return same, same
        further = values[..., GUARDED].masked_fill(~eligible, -math.inf)
        return further + values[..., FIRST], further.masked_fill(further <= self.caution, -math.inf)


def top(utilities: Tensor, blocks: int) -> Tensor:
    """(..., U) bool: at most `blocks` users of the highest positive utility; the exact argmax of an additive value."""
    count = min(blocks, utilities.shape[-1])
    found = torch.topk(utilities, count, dim=-1)
    selected = torch.zeros_like(utilities, dtype=torch.bool)
    return selected.scatter_(-1, found.indices, found.values > 0)


class SubsetHead(nn.Module):
    """A value per subset of at most R users, from a separate network for every station, as in the paper.

    With `dueling`, all subsets share a base value, so that untried subsets are not overestimated.
    Without `masked`, stations may select users that they cannot serve, as in the paper.
    """

    price: Tensor
    caution: Tensor
    table: Tensor

    def __init__(
        self,
        inputs: int,
        hidden: int,
        blocks: int,
        parts: int,
        *,
        stations: int,
        users: int,
        dueling: bool,
        masked: bool,
    ) -> None:
        super().__init__()
        self.blocks, self.masked, self.parts = blocks, masked, parts
        table = subsets(users, blocks)
        self.register_buffer("price", torch.ones(()))
        self.register_buffer("caution", torch.zeros(()))
        self.register_buffer("table", torch.from_numpy(table.astype(np.float32)), persistent=False)
        self.first_stack = nn.Parameter(torch.zeros(stations, users * inputs, hidden))
        self.first_bias = nn.Parameter(torch.zeros(stations, 1, hidden))
        self.second_stack = nn.Parameter(torch.zeros(stations, hidden, hidden))
        self.second_bias = nn.Parameter(torch.zeros(stations, 1, hidden))
        self.last_stack = nn.Parameter(torch.zeros(stations, hidden, len(table) * parts))
        self.base_stack = nn.Parameter(torch.zeros(stations, hidden, parts)) if dueling else None

    def forward(self, features: Tensor) -> Tensor:
        """(N, B, A, C): the value of every subset."""
        flat = features.flatten(start_dim=2).transpose(0, 1)  # (B, N, U F)
        code = functional.relu(torch.baddbmm(self.first_bias, flat, self.first_stack))
        code = functional.relu(torch.baddbmm(self.second_bias, code, self.second_stack))
        values = torch.bmm(code, self.last_stack).view(*code.shape[:2], len(self.table), self.parts)
        if self.base_stack is not None:
            values = values + torch.bmm(code, self.base_stack).unsqueeze(-2)
        return torch.as_tensor(values.transpose(0, 1))

    def value(self, features: Tensor, selected: Tensor, first: Tensor) -> Tensor:
        """(N, B, C): the value of each station's subset; `first` is not needed."""
        number = torch.from_numpy(subset_numbers(selected.numpy().astype(bool), self.blocks))
        index = number[..., None, None].expand(-1, -1, 1, self.parts)
        return torch.as_tensor(self(features).gather(-2, index).squeeze(-2))

    def best(self, features: Tensor, eligible: Tensor) -> Tensor:
        """(N, B, U) bool: the allowed subset of highest value."""
        values = self._allowed(combine(self(features), self.price), eligible)
        return self.table[values.argmax(dim=-1)] > 0

    def utilities(self, features: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
        """(N, B, U) twice the same: the loss of the subset of highest gain without each of its users, else -inf.

        A user without whom the gain does not fall keeps a utility just above 0.
        """
        values = self._allowed(self(features)[..., -1], eligible)
        selected = self.table[values.argmax(dim=-1)] > 0
        users = selected.shape[-1]
        without = selected.unsqueeze(-2) & ~torch.eye(users, dtype=torch.bool)  # (N, B, U, U): row i drops user i
        rest = values.gather(-1, torch.from_numpy(subset_numbers(without.numpy(), self.blocks)))
        loss = (values.amax(dim=-1, keepdim=True) - rest).clamp_min(1e-6)
        wanted = loss.masked_fill(~selected | (loss <= self.caution), -math.inf)
        return wanted, wanted

    def _allowed(self, values: Tensor, eligible: Tensor) -> Tensor:
        """Values (N, B, A) with -inf for subsets that the station may not take."""
        if not self.masked:
            return values
        forbidden = (~eligible).float() @ self.table.T > 0
        return values.masked_fill(forbidden, -math.inf)
