"""The stations' side: add masked uploads, exchange partial sums, unmask the slots that users allow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.security.encoding import Words, decode
from covey.security.errors import BelowThresholdError, SecurityError, TamperedError
from covey.security.keys import KEY_BYTES, agree, key_pair
from covey.security.masks import apply_mask, pair_key, pair_sign, self_key
from covey.security.messages import MaskedUpload, PartialSum, PublicKeys, UnmaskAnswer
from covey.security.parameters import Session
from covey.security.sharing import combine, unpack


class Aggregator:
    """One station: it adds its own users' uploads as they arrive and keeps none of them.

    Users mask against the users of all stations, so `partial` reveals nothing until the partial
    sums of all stations are added (`add_partials`) and `unmask` is given enough users' answers.
    """

    def __init__(self, session: Session) -> None:
        self._shape = (session.parameters.slots, session.parameters.length + 1)
        self._total: Words = np.zeros(self._shape, dtype=np.uint64)
        self._users: list[int] = []

    def receive(self, upload: MaskedUpload) -> None:
        """Adds one user's upload; rejects a second one and one of the wrong size."""
        if upload.user in self._users:
            raise SecurityError(f"user {upload.user} sent two uploads in one round; only the first counts")
        if upload.words.shape != self._shape or upload.words.dtype != np.uint64:
            raise SecurityError(
                f"an upload holds {self._shape} words of 64 bits, got {upload.words.shape} of {upload.words.dtype}"
            )
        self._users.append(upload.user)
        self._total += upload.words

    def partial(self) -> PartialSum:
        """The sum of the uploads received here, for the station that unmasks."""
        return PartialSum(tuple(sorted(self._users)), self._total)


def add_partials(partials: Sequence[PartialSum]) -> PartialSum:
    """The sum over stations, modulo 2^64; a user must not have uploaded at two stations."""
    users = [user for partial in partials for user in partial.users]
    if len(set(users)) != len(users):
        raise SecurityError("a user uploaded at two stations in one round; its words would count twice")
    total = partials[0].words.copy()
    for partial in partials[1:]:
        total += partial.words
    return PartialSum(tuple(sorted(users)), total)


@dataclass(frozen=True, eq=False)
class OpenedSums:
    """sums: (K, D) of samples * value, NaN where closed; samples: (K,), 0 where closed; counts, opened: (K,)."""

    sums: NDArray[np.float64]
    samples: NDArray[np.int64]
    counts: NDArray[np.int64]
    opened: NDArray[np.bool_]


def unmask(
    session: Session,
    total: PartialSum,
    roster: Mapping[int, PublicKeys],
    sharers: Collection[int],
    answers: Sequence[UnmaskAnswer],
) -> OpenedSums:
    """Opens the slots of `total` for which users revealed seed shares; the others stay masked.

    total: the sum over all survivors. roster: public keys by user. sharers: all users who shared their
    keys; those without an upload are the dropped ones, whose masks in others' uploads are removed here.
    """
    parameters = session.parameters
    counts = _agreed_counts(answers, parameters.threshold)
    slots = [slot for slot, count in enumerate(counts) if count >= parameters.minimum]
    dropped = sorted(set(sharers) - set(total.users)) if slots else []
    holders = [answer.user for answer in answers]
    keys = _secrets(holders, [answer.key_shares for answer in answers], dropped, parameters.threshold)
    private = dict(zip(dropped, keys, strict=True))
    for user, key in private.items():
        if key_pair(key).public != roster[user].mask:
            raise TamperedError(f"the recovered mask key of user {user} does not fit its public key")
    agreed = {(user, gone): agree(key, roster[user].mask) for gone, key in private.items() for user in total.users}
    sums = np.full((parameters.slots, parameters.length), np.nan)
    samples = np.zeros(parameters.slots, dtype=np.int64)
    for slot in slots:
        words = total.words[slot].copy()
        rows = [answer.seed_shares.get(slot, {}) for answer in answers]
        seeds = _secrets(holders, rows, total.users, parameters.threshold)
        for user, seed in zip(total.users, seeds, strict=True):
            apply_mask(words, self_key(seed, session, user, slot), -1)
        for (user, gone), secret in agreed.items():
            apply_mask(words, pair_key(secret, session, roster[user], roster[gone], slot), -pair_sign(user, gone))
        sums[slot], samples[slot] = decode(words, parameters)
        # A mask that did not cancel leaves uniform words, which pass this check with probability 1 / 2048.
        if not counts[slot] <= samples[slot] < 2**53:
            raise TamperedError(f"slot {slot} does not open to a sum: an upload was not masked as agreed")
    opened = np.isin(np.arange(parameters.slots), slots)
    return OpenedSums(sums, samples, np.array(counts, dtype=np.int64), opened)


def _agreed_counts(answers: Sequence[UnmaskAnswer], threshold: int) -> tuple[int, ...]:
    if len(answers) < threshold:
        raise BelowThresholdError(
            f"{len(answers)} users answered and {threshold} are needed to open the sums; "
            "the round goes on without a model change"
        )
    if len({answer.counts for answer in answers}) > 1:
        raise TamperedError("users report different counts of the same slots")
    return answers[0].counts


def _secrets(
    holders: Sequence[int], rows: Sequence[Mapping[int, bytes]], owners: Sequence[int], threshold: int
) -> list[bytes]:
    """The 32-byte secret of each of `owners`, from each holder's shares by owner."""
    if not owners:
        return []
    if any(set(row) != set(owners) for row in rows):
        raise TamperedError(f"an answer does not hold the shares of exactly the users {list(owners)}")
    elements = np.array([[unpack(row[owner], 1)[0] for owner in owners] for row in rows], dtype=object)
    secrets = combine(holders, elements, threshold)
    if any(secret >= 2 ** (8 * KEY_BYTES) for secret in secrets):
        raise TamperedError("recovered shares do not hold a 256-bit secret")
    return [secret.to_bytes(KEY_BYTES, "big") for secret in secrets]
