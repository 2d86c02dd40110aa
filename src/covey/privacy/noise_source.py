"""Sources of Gaussian noise: seeded for repeatable runs, cryptographic for deployment.

A source is a picklable callable `(user, round, purpose, size) -> (size,) float64` of standard
normal values; the caller scales them. Every user has its own stream.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from covey.seeding import generator


@dataclass(frozen=True)
class ReplayNoise:
    """Noise from the run's seed: the same bits every time, so a run with it is not private itself."""

    seed: int

    def __call__(self, user: int, round: int, purpose: str, size: int) -> NDArray[np.float64]:
        """(size,) standard normal values of this user, round and purpose."""
        return generator(self.seed, purpose, user=user, round=round).standard_normal(size)


@dataclass(frozen=True)
class SecureNoise:
    """Noise from the operating system's cryptographic generator; never the same twice, never seeded."""

    def __call__(self, user: int, round: int, purpose: str, size: int) -> NDArray[np.float64]:
        """(size,) standard normal values by Box-Muller on 53-bit uniforms."""
        pairs = (size + 1) // 2
        bits = np.frombuffer(os.urandom(16 * pairs), dtype=np.uint64).reshape(2, pairs)
        uniform = _inside(bits)
        radius = np.sqrt(-2.0 * np.log(uniform[0]))
        angle = 2.0 * np.pi * uniform[1]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]

    def uniform(self, size: int) -> NDArray[np.float64]:
        """(size,) values between 0 and 1."""
        return _inside(np.frombuffer(os.urandom(8 * size), dtype=np.uint64))


def _inside(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform values inside (0, 1), so that their log is finite, from random bits."""
    return np.asarray(((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


@dataclass(frozen=True)
class NoNoise:
    """Placeholder where noise is off; a request for noise is an error, so that no caller assumes it."""

    def __call__(self, user: int, round: int, purpose: str, size: int) -> NDArray[np.float64]:
        """Never returns."""
        raise RuntimeError("noise was requested in a run whose noise is off")


def build_noise(kind: Literal["replay", "secure", "off"], seed: int) -> ReplayNoise | SecureNoise | NoNoise:
    """The noise source named in a scenario's `privacy.noise`."""
    if kind == "replay":
        return ReplayNoise(seed)
    return SecureNoise() if kind == "secure" else NoNoise()
