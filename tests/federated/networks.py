"""Small modules for the tests of clipping: those that hooks can follow, and those that they cannot."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


def samples(n: int, shape: tuple[int, ...], classes: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(n)
    return torch.randn(n, *shape, generator=draw, dtype=dtype), torch.randint(classes, (n,), generator=draw)


def make(build: Callable[[], nn.Module], dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build().to(dtype)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(5, 6, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(6 * 25, 8),
        nn.Tanh(),
        nn.Linear(8, 3),
    )


def pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding="same", bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4, 3),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 4, bias=False))


def dilated() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, (3, 2), (2, 1), (2, 1), (1, 2)), nn.Flatten(), nn.Linear(160, 3))


def deep_image() -> nn.Module:
    return nn.Sequential(nn.Conv2d(12, 4, 3, dilation=2, padding=2), nn.Flatten(), nn.Linear(144, 3))


def one_pixel() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 4), nn.Flatten())


class Tokens(nn.Module):
    """Linear layers on (n, T, features), one of them wide enough for a ghost norm."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Linear(6, 40)
        self.wide = nn.Linear(40, 50)
        self.out = nn.Linear(50, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(functional.relu(self.wide(torch.tanh(self.small(x)))).mean(1))


class Residual(nn.Module):
    """Two branches, and an image so small that a convolution takes a ghost norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 16, 3, stride=3, bias=False)
        self.second = nn.Conv2d(16, 16, 3, padding="same")
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.first(x))
        return self.out((hidden + torch.tanh(self.second(hidden))).mean((2, 3)))


class Idle(nn.Module):
    """Has a layer that takes no part."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Linear(4, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(6, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.twice(torch.tanh(self.twice(x)))))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 6)
        self.other = nn.Linear(6, 6)
        self.other.weight = self.one.weight
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.other(torch.tanh(self.one(x)))))


class Stray(nn.Module):
    """Uses a layer's weight once more outside of the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * (1 + self.layer.weight.square().sum())


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.full((3,), 0.7))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class TimeFirst(nn.Module):
    """Rows of the layer's input are not samples, even where there are as many of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.layer(x.transpose(0, 1))).mean(0))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(2, 5, batch_first=True)
        self.out = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cell(x)[0][:, -1])


class Choosing(nn.Module):
    """Uses its layer twice, but only on large samples: nothing to see when it is tried on small ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        return self.layer(out) if float(x.detach().abs().max()) > 50 else out


class Subclass(nn.Linear):
    def __init__(self) -> None:
        super().__init__(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).square()


def grouped() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(16, 3))


def normed() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 3))


def even_same() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 2, padding="same"), nn.Flatten(), nn.Linear(64, 3))


Network = tuple[Callable[[], nn.Module], tuple[int, ...], int]

FAST: dict[str, Network] = {
    "cnn": (cnn, (2, 10, 10), 3),
    "pooled": (pooled, (3, 9, 10), 3),
    "mlp": (mlp, (3, 4), 4),
    "dilated": (dilated, (3, 7, 8), 3),
    "deep_image": (deep_image, (12, 6, 6), 3),
    "one_pixel": (one_pixel, (2, 4, 4), 3),
    "tokens": (Tokens, (5, 6), 3),
    "residual": (Residual, (2, 6, 6), 3),
    "idle": (Idle, (4,), 3),
}
SLOW: dict[str, Network] = {
    "twice": (Twice, (6,), 3),
    "tied": (Tied, (6,), 3),
    "stray": (Stray, (6,), 3),
    "scaled": (Scaled, (6,), 3),
    "time_first": (TimeFirst, (3, 2), 3),
    "recurrent": (Recurrent, (4, 2), 3),
    "subclass": (Subclass, (6,), 3),
    "grouped": (grouped, (2, 4, 4), 3),
    "normed": (normed, (2, 4, 4), 3),
    "even_same": (even_same, (2, 4, 4), 3),
}
