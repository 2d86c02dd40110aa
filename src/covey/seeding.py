"""One independent random generator per purpose, user and round.

Generators are derived, never shared or advanced across rounds: `generator(seed, "noise", user=3,
round=7)` is the same stream on every machine, in every process and after every resume. That is
what makes a run bit-identical at any number of workers and lets a resumed run continue exactly.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

#: Purposes of covey itself and their fixed numbers. Numbers are never reused: old seeds must keep their meaning.
PURPOSES: dict[str, int] = {
    "placement": 1,
    "mobility": 2,
    "shadowing": 3,
    "fading": 4,
    "groups": 5,
    "samples": 6,
    "partition": 7,
    "model": 8,
    "identity": 9,
    "identify_batch": 10,
    "train_batch": 11,
    "noise": 12,
    "policy": 13,
    "kmeans": 14,
    "kmeans_noise": 15,
    "synthetic": 16,
    "surrogate": 17,
    "exploration": 18,
    "replay": 19,
    "network": 20,
    "bootstrap": 21,
    "identity_noise": 22,
    "loss": 23,
    "masks": 24,
    "offer": 30,
    "start": 31,
    "tie": 32,
    "mixture": 40,
    "soft": 41,
    "noise_batch": 45,
    "kmeans_noise_batch": 46,
    "central": 50,
    "personal_batch": 51,
}


@cache
def number_of(purpose: str) -> int:
    """The number of a purpose, below 2^32: that of `PURPOSES`; for any other name one made from it, from 2^31 on."""
    if purpose in PURPOSES:
        return PURPOSES[purpose]
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:4], "big") | 1 << 31


def generator(seed: int, purpose: str, *, user: int = 0, round: int = 0) -> np.random.Generator:
    """The generator of one purpose, user and round of the run with this seed; parts of others may name their own."""
    sequence = np.random.SeedSequence([seed, number_of(purpose), user, round])
    return np.random.Generator(np.random.PCG64DXSM(sequence))
