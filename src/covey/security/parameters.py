"""Protocol parameters that all users and stations share, and the context that binds keys to them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: Version of the protocol; part of every key derivation, so that versions never share a mask.
PROTOCOL = b"covey secure aggregation 1"

#: Words are modulo 2^64. A slot's sum needs log2(users * samples * |value|) integer bits and one for
#: the sign: 17 bits for 12 users of 600 samples and weights up to 8. With 32-bit words 15 bits remain
#: for the fraction, a resolution of 2^-16 / 400 = 4e-8 of the mean weight: an error of 4e-6 relative
#: to a weight of 0.01, and a model with weights above 8 would overflow. With 64-bit words and the
#: scale 2^36 the rounding of one term is at most 2^-37, below the float32 precision of every weight
#: above 1e-6 (at 400 samples), and 12 users of 600 samples may send values up to 18,600.
WORD_BITS = 64


def default_threshold(users: int) -> int:
    """More than two thirds of the users: 9 of 12, so that 3 of 12 may drop out."""
    return 2 * users // 3 + 1 if users > 2 else users


@dataclass(frozen=True)
class Parameters:
    """Sizes and limits of one round of secure aggregation.

    users: number of users that take part, over all stations. threshold: how many users must answer to
    open anything; fewer colluding users cannot. minimum: contributors a slot needs to be opened.
    slots: number of tasks K. length: number of values D of one model. scale: fixed-point units per 1.
    """

    users: int
    threshold: int
    minimum: int
    slots: int
    length: int
    scale: float = 2.0**36

    def __post_init__(self) -> None:
        if not 1 <= self.users < 2**16:
            raise ValueError(f"users must be from 1 to {2**16 - 1}, got {self.users}")
        # Above one half no two disjoint groups of users can both answer, so that a station cannot open
        # counts for two sets of survivors, nor both kinds of share of one user, by asking them separately.
        if not self.users < 2 * self.threshold <= 2 * self.users:
            raise ValueError(
                f"threshold must be above half of the {self.users} users and at most all of them, got {self.threshold}"
            )
        if self.minimum < 2:
            raise ValueError(
                f"minimum must be 2 or more, got {self.minimum}: the sum of a slot with one contributor is its upload"
            )
        if self.slots < 1 or self.length < 1:
            raise ValueError(f"slots and length must be 1 or more, got {self.slots} and {self.length}")
        if not 0.0 < self.scale < 2.0**62:
            raise ValueError(f"scale must be above 0 and below 2^62, got {self.scale}")

    @property
    def words_per_upload(self) -> int:
        """Words in one upload, K * (D + 1): the weighted values and the sample count of every slot."""
        return self.slots * (self.length + 1)

    @property
    def word_limit(self) -> int:
        """Largest magnitude of one user's word: `users` such words cannot leave the signed 64-bit range."""
        return ((1 << (WORD_BITS - 1)) - 1) // self.users

    @property
    def value_limit(self) -> float:
        """Largest |samples * value| a user can send without a possible overflow of the sum."""
        return self.word_limit / self.scale


@dataclass(frozen=True)
class Session:
    """One round of one run: its parameters and the name every derived key is bound to."""

    parameters: Parameters
    run: str
    round: int

    def __post_init__(self) -> None:
        if self.round < 0:
            raise ValueError(f"round must be 0 or more, got {self.round}")

    def context(self, purpose: str, *numbers: int) -> bytes:
        """The bytes that bind a key to version, parameters, run, round, purpose and `numbers` (ids, slot).

        Strings are length-prefixed and numbers have 8 bytes each, so that no two contexts have the same encoding.
        """
        p = self.parameters
        texts = b"".join(struct.pack(">I", len(t)) + t for t in (PROTOCOL, self.run.encode(), purpose.encode()))
        sizes = struct.pack(">5Qd", p.users, p.threshold, p.minimum, p.slots, p.length, p.scale)
        return texts + sizes + struct.pack(f">{1 + len(numbers)}Q", self.round, *numbers)
