"""Entropy sources of keys, seeds, polynomial coefficients and nonces."""

from __future__ import annotations

import secrets
from typing import Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from covey.security.keys import derive


class Entropy(Protocol):
    """A source of secret bytes."""

    def draw(self, count: int) -> bytes:
        """The next `count` bytes."""
        ...

    def child(self, *labels: int) -> Entropy:
        """An independent source for one user of one round."""
        ...


class SystemEntropy:
    """Bytes of the operating system's cryptographic generator, for deployments."""

    def draw(self, count: int) -> bytes:
        """The next `count` bytes, never the same twice."""
        return secrets.token_bytes(count)

    def child(self, *labels: int) -> SystemEntropy:
        """This same source: its bytes are independent anyway."""
        return self


class SeededEntropy:
    """Deterministic bytes from a seed, so that a simulated round can be replayed bit for bit.

    A round with this source is NOT private: anyone who knows or guesses the seed can compute every
    key and mask. It is for simulations and tests. Separate users and rounds have separate streams
    (`child`); the stream is AES-256-CTR under a key derived from the seed and the labels.
    """

    def __init__(self, seed: int, *labels: int) -> None:
        if seed < 0 or any(label < 0 for label in labels):
            raise ValueError(f"a seed and its labels must be 0 or more, got {(seed, *labels)}")
        self._path = (seed, *labels)
        name = "/".join(str(part) for part in self._path).encode()
        key = derive(name, b"covey seeded entropy, not private")
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def draw(self, count: int) -> bytes:
        """The next `count` bytes of this stream."""
        return self._stream.update(bytes(count))

    def child(self, *labels: int) -> SeededEntropy:
        """The stream of these labels; it does not depend on what was drawn here before."""
        return SeededEntropy(*self._path, *labels)
