"""One user's side of a round. It decides what leaves the device; a station only asks."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import ArrayLike

from covey.security.encoding import encode
from covey.security.entropy import Entropy
from covey.security.errors import BelowThresholdError, RefusedError, TamperedError
from covey.security.keys import KEY_BYTES, agree, derive, key_pair, seal, unseal
from covey.security.masks import apply_mask, pair_key, pair_sign, self_key
from covey.security.messages import Envelope, MaskedUpload, PublicKeys, UnmaskAnswer
from covey.security.parameters import Session
from covey.security.sharing import PRIME, combine, pack, split, unpack


class Client:
    """User `user` with task `task` in one round; make a new one, with new keys, for every round.

    The calls in order, each once: `advertise`, `agree`, `share`, `accept`, `upload`, `count`, `reveal`.
    Whatever the task, all messages have the same sizes. For each peer, a user holds one share of
    each of 2 K + 1 secrets: the seeds of the personal masks of the K slots, the private mask key, and
    the K numbers that are 1 for the peer's task and 0 elsewhere.
    """

    def __init__(self, session: Session, user: int, task: int, entropy: Entropy) -> None:
        parameters = session.parameters
        if not 0 <= user < parameters.users:
            raise ValueError(f"user must be from 0 to {parameters.users - 1}, got {user}")
        if not 0 <= task < parameters.slots:
            raise ValueError(f"task must be from 0 to {parameters.slots - 1}, got {task}")
        self.user = user
        self._session, self._task, self._entropy = session, task, entropy
        self._envelope_keys = key_pair(entropy.draw(KEY_BYTES))
        self._mask_keys = key_pair(entropy.draw(KEY_BYTES))
        # One seed per slot, so that slots can be unmasked independently.
        self._seeds = [entropy.draw(KEY_BYTES) for _ in range(parameters.slots)]
        self._next = "advertise"
        self._roster: dict[int, PublicKeys] = {}
        self._envelope_secrets: dict[int, bytes] = {}
        self._mask_secrets: dict[int, bytes] = {}
        self._held: dict[int, list[int]] = {}
        self._survivors: tuple[int, ...] = ()
        self._count_shares: list[int] = []
        self._count_envelopes: list[Envelope] = []

    def advertise(self) -> PublicKeys:
        """This user's public keys, for all other users."""
        self._step("advertise", "agree")
        return self._own_keys()

    def agree(self, roster: Iterable[PublicKeys]) -> None:
        """Runs the key agreement with all users in `roster`, the public keys of all participants."""
        listed = list(roster)
        users = [keys.user for keys in listed]
        public = [key for keys in listed for key in (keys.envelope, keys.mask)]
        if len(set(users)) != len(users) or not set(users) <= set(range(self._session.parameters.users)):
            raise TamperedError(f"the roster must name each user once, from 0 up, got {users}")
        if len(set(public)) != len(public):
            raise TamperedError("the roster holds one public key twice")
        if self._own_keys() not in listed:
            raise TamperedError(f"the roster does not hold the keys that user {self.user} sent")
        self._enough(len(listed), "sent keys")
        self._step("agree", "share")
        self._roster = {keys.user: keys for keys in listed}
        for peer, keys in self._roster.items():
            if peer != self.user:
                self._envelope_secrets[peer] = agree(self._envelope_keys.private, keys.envelope)
                self._mask_secrets[peer] = agree(self._mask_keys.private, keys.mask)

    def share(self) -> list[Envelope]:
        """Sealed shares of this user's secrets, one envelope for each peer."""
        self._step("share", "accept")
        parameters = self._session.parameters
        secrets = [int.from_bytes(secret, "big") for secret in (*self._seeds, self._mask_keys.private)]
        secrets += [int(slot == self._task) for slot in range(parameters.slots)]
        shares = split(secrets, parameters.users, parameters.threshold, self._entropy)
        self._held[self.user] = list(shares[self.user])
        return [self._seal("shares", peer, pack(shares[peer]), b"") for peer in self._envelope_secrets]

    def accept(self, envelopes: Iterable[Envelope]) -> None:
        """Stores the shares that peers sent; only these peers are part of the round from here on."""
        count = 2 * self._session.parameters.slots + 1
        taken: dict[int, list[int]] = {}
        for envelope in envelopes:
            if envelope.sender in taken:
                raise TamperedError(f"user {envelope.sender} sent shares twice")
            taken[envelope.sender] = unpack(self._unseal("shares", envelope, b""), count)
        self._enough(1 + len(taken), "shared their keys")
        self._step("accept", "upload")
        self._held.update(taken)

    def upload(self, values: ArrayLike, samples: int) -> MaskedUpload:
        """The masked upload of `values` (D,) weighted by `samples`; `EncodingError` where they do not fit."""
        parameters = self._session.parameters
        own = encode(values, samples, parameters)
        # Once: the difference of two uploads under the same masks is the difference of their values.
        self._step("upload", "count")
        words = np.zeros((parameters.slots, parameters.length + 1), dtype=np.uint64)
        words[self._task] = own
        for slot in range(parameters.slots):
            apply_mask(words[slot], self_key(self._seeds[slot], self._session, self.user, slot), 1)
            for peer in self._peers():
                one, other = self._roster[self.user], self._roster[peer]
                key = pair_key(self._mask_secrets[peer], self._session, one, other, slot)
                apply_mask(words[slot], key, pair_sign(self.user, peer))
        return MaskedUpload(self.user, words)

    def count(self, survivors: Collection[int]) -> list[Envelope]:
        """Sealed shares of the number of `survivors` in each slot, one envelope for each other survivor.

        `survivors` are the users whose uploads arrived, as reported by the stations. This fixes, for the rest of the
        round, whose seed shares and whose key shares this user will reveal; another set is refused. A retry
        with the same set returns the same envelopes.
        """
        asked = tuple(sorted(set(survivors)))
        if self._survivors:
            if asked == self._survivors:
                return self._count_envelopes
            both = sorted(set(asked) ^ set(self._survivors))
            raise RefusedError(
                f"user {self.user} answered for the survivors {list(self._survivors)} and refuses {list(asked)} in the "
                f"same round: that would reveal both kinds of share of {both}, and their tasks by difference"
            )
        if self.user not in asked or not set(asked) <= self._held.keys():
            raise RefusedError(
                f"user {self.user} refuses the survivors {list(asked)}: they must include itself and nobody outside "
                f"the users who shared their keys, {sorted(self._held)}"
            )
        self._enough(len(asked), "uploaded")
        self._step("count", "reveal")
        self._survivors = asked
        slots = self._session.parameters.slots
        self._count_shares = [
            sum(self._held[peer][slots + 1 + slot] for peer in asked) % PRIME for slot in range(slots)
        ]
        bound, payload = self._agreed_sets(), pack(self._count_shares)
        self._count_envelopes = [self._seal("counts", peer, payload, bound) for peer in asked if peer != self.user]
        return self._count_envelopes

    def reveal(self, envelopes: Iterable[Envelope]) -> UnmaskAnswer:
        """Opens the counts from the survivors' `envelopes` and answers for the slots that reach the minimum.

        The user computes the counts from shares that no station can read or change: whatever a station claims, the
        seed shares of a slot below the minimum do not leave this device. `TamperedError` where the counts
        contradict the survivors or this user's own task.
        """
        self._expect("reveal")
        parameters = self._session.parameters
        slots = parameters.slots
        shares = {self.user: self._count_shares}
        for envelope in envelopes:
            if envelope.sender in shares:
                raise TamperedError(f"user {envelope.sender} sent counts twice")
            shares[envelope.sender] = unpack(self._unseal("counts", envelope, self._agreed_sets()), slots)
        counts = combine(list(shares), np.array(list(shares.values()), dtype=object), parameters.threshold)
        if sum(counts) != len(self._survivors) or max(counts) > len(self._survivors) or counts[self._task] < 1:
            raise TamperedError("the opened counts of the slots do not add up to the survivors")
        self._next = "nothing"
        opened = [slot for slot in range(slots) if counts[slot] >= parameters.minimum]
        dropped = sorted(self._held.keys() - set(self._survivors)) if opened else []
        return UnmaskAnswer(
            self.user,
            tuple(counts),
            {slot: {peer: pack([self._held[peer][slot]]) for peer in self._survivors} for slot in opened},
            {peer: pack([self._held[peer][slots]]) for peer in dropped},
        )

    def _own_keys(self) -> PublicKeys:
        return PublicKeys(self.user, self._envelope_keys.public, self._mask_keys.public)

    def _peers(self) -> list[int]:
        """The other users of the round: those whose shares arrived."""
        return [peer for peer in self._held if peer != self.user]

    def _step(self, name: str, following: str) -> None:
        """Advances to the next step; refuses a step out of order."""
        self._expect(name)
        self._next = following

    def _expect(self, name: str) -> None:
        if self._next != name:
            raise RefusedError(
                f"user {self.user} was asked to {name} but its next step is {self._next}: each step happens once"
            )

    def _enough(self, count: int, did: str) -> None:
        threshold = self._session.parameters.threshold
        if count < threshold:
            raise BelowThresholdError(
                f"{count} users {did} and {threshold} are needed; the round goes on without a model change"
            )

    def _agreed_sets(self) -> bytes:
        """A digest of the sharers and survivors: users who were told different sets cannot count together."""
        members = f"{sorted(self._held)} {list(self._survivors)}"
        return hashlib.sha256(members.encode()).digest()

    def _seal(self, purpose: str, peer: int, plaintext: bytes, bound: bytes) -> Envelope:
        context = self._session.context(purpose, self.user, peer)
        key = derive(self._envelope_secrets[peer], context)
        return Envelope(self.user, peer, seal(key, plaintext, context + bound, self._entropy))

    def _unseal(self, purpose: str, envelope: Envelope, bound: bytes) -> bytes:
        if envelope.receiver != self.user or envelope.sender not in self._envelope_secrets:
            raise TamperedError(
                f"user {self.user} got an envelope from {envelope.sender} to {envelope.receiver}, who is not its peer"
            )
        context = self._session.context(purpose, envelope.sender, self.user)
        key = derive(self._envelope_secrets[envelope.sender], context)
        return unseal(key, envelope.payload, context + bound)
