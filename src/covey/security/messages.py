"""Messages between users and stations: plain bytes and arrays, each with its size on the air."""

from __future__ import annotations

from dataclasses import dataclass

from covey.security.encoding import Words

#: Bytes of a user id, a slot number, a count.
NUMBER_BYTES = 4


@dataclass(frozen=True)
class PublicKeys:
    """A user's two public keys of the round: one for sealed envelopes, one for masks."""

    user: int
    envelope: bytes
    mask: bytes

    @property
    def size(self) -> int:
        """Bytes on the air."""
        return NUMBER_BYTES + len(self.envelope) + len(self.mask)


@dataclass(frozen=True)
class Envelope:
    """Sealed bytes from one user to another; stations only relay it."""

    sender: int
    receiver: int
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes on the air."""
        return 2 * NUMBER_BYTES + len(self.payload)


@dataclass(frozen=True, eq=False)
class MaskedUpload:
    """A user's words (K, D + 1): its own slot and zeros elsewhere, all under masks."""

    user: int
    words: Words

    @property
    def size(self) -> int:
        """Bytes on the air."""
        return NUMBER_BYTES + self.words.nbytes


@dataclass(frozen=True, eq=False)
class PartialSum:
    """The sum (K, D + 1) of the masked uploads of `users`, still masked unless they are all survivors."""

    users: tuple[int, ...]
    words: Words

    @property
    def size(self) -> int:
        """Bytes between two stations."""
        return NUMBER_BYTES * len(self.users) + self.words.nbytes


@dataclass(frozen=True)
class UnmaskAnswer:
    """A user's answer to the stations at the end of a round.

    counts: contributors of each of the K slots. seed_shares: slot -> survivor -> share of the seed of
    its personal mask, for large enough slots only. key_shares: dropped user -> share of its mask key.
    """

    user: int
    counts: tuple[int, ...]
    seed_shares: dict[int, dict[int, bytes]]
    key_shares: dict[int, bytes]

    @property
    def size(self) -> int:
        """Bytes on the air."""
        shares = [share for row in self.seed_shares.values() for share in row.values()]
        shares += self.key_shares.values()
        return NUMBER_BYTES * (1 + len(self.counts) + len(shares)) + sum(len(share) for share in shares)
