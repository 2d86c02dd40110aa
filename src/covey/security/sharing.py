"""Shamir secret sharing of 256-bit secrets over a prime field.

Sharing is additive (shares of sums are sums of shares), so slot counts open without revealing single tasks.
Many secrets are shared or recovered by one matrix product of Python integers (object arrays): sums
of products are reduced once at the end. Measured: nine secrets of one of 12 users 0.15 ms, of one
of 200 users 45 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from covey.security.entropy import Entropy
from covey.security.errors import BelowThresholdError, TamperedError

#: The smallest prime above 2^256: every 32-byte secret is an element of the field.
PRIME = 2**256 + 297
#: Bytes of one field element on the wire.
ELEMENT_BYTES = 33

Elements = NDArray[np.object_]


def split(secrets: Sequence[int], shares: int, threshold: int, entropy: Entropy) -> Elements:
    """(shares, S) field elements: row j holds point j + 1 of the polynomial of each of the S secrets.

    Any `threshold` rows recover the secrets; fewer reveal nothing about them.
    """
    if any(not 0 <= secret < PRIME for secret in secrets):
        raise ValueError(f"a secret to share must be from 0 to 2^256 + 296 ({len(secrets)} secrets given)")
    # 384 random bits per coefficient: the remainder is uniform up to 2^-127.
    wide = entropy.draw(48 * (threshold - 1) * len(secrets))
    random = [int.from_bytes(wide[at : at + 48], "big") % PRIME for at in range(0, len(wide), 48)]
    coefficients = np.array([*secrets, *random], dtype=object).reshape(threshold, len(secrets))
    result: Elements = (_powers(shares, threshold) @ coefficients) % PRIME
    return result


def combine(holders: Sequence[int], shares: Elements, threshold: int) -> list[int]:
    """The S secrets behind `shares` (H, S), whose row h is held by user `holders[h]` (point holder + 1).

    Shares beyond the threshold must lie on the same polynomials, else `TamperedError`.
    """
    if len(set(holders)) != len(holders):
        raise ValueError(f"every holder gives its shares once, got {list(holders)}")
    if len(holders) < threshold:
        raise BelowThresholdError(
            f"{len(holders)} users answered and {threshold} are needed to open anything; "
            "the round goes on without a model change"
        )
    known: Elements = (_weights(tuple(holders), threshold) @ shares[:threshold]) % PRIME
    if not np.array_equal(known[1:], shares[threshold:]):
        raise TamperedError("the shares of one secret do not fit together; at least one of them is wrong")
    return [int(value) for value in known[0]]


def pack(elements: Sequence[int] | Elements) -> bytes:
    """`elements` as 33 bytes each."""
    return b"".join(int(element).to_bytes(ELEMENT_BYTES, "big") for element in elements)


def unpack(data: bytes, count: int) -> list[int]:
    """The `count` field elements that `pack` wrote."""
    if len(data) != count * ELEMENT_BYTES:
        raise TamperedError(f"{count} shares take {count * ELEMENT_BYTES} bytes, got {len(data)}")
    elements = [int.from_bytes(data[at : at + ELEMENT_BYTES], "big") for at in range(0, len(data), ELEMENT_BYTES)]
    if any(element >= PRIME for element in elements):
        raise TamperedError("a share lies outside the field")
    return elements


@lru_cache(maxsize=8)
def _powers(shares: int, threshold: int) -> Elements:
    """(shares, threshold): row j holds the powers 0, 1, ... of the point j + 1."""
    return np.array([[pow(x, e, PRIME) for e in range(threshold)] for x in range(1, shares + 1)], dtype=object)


@lru_cache(maxsize=8)
def _weights(holders: tuple[int, ...], threshold: int) -> Elements:
    """Lagrange weights of the first `threshold` holders: row 0 for the point 0, then for each further holder."""
    points = [holder + 1 for holder in holders]
    base, targets = points[:threshold], [0, *points[threshold:]]
    rows = []
    for target in targets:
        row = []
        for x in base:
            above, below = 1, 1
            for other in base:
                if other != x:
                    above, below = above * (target - other) % PRIME, below * (x - other) % PRIME
            row.append(above * pow(below, -1, PRIME) % PRIME)
        rows.append(row)
    return np.array(rows, dtype=object)
