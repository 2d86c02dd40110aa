"""Secure aggregation over messages: the client and the server side of `covey.security`, phase by phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from covey.deploy.app.wire import Array, Packet, Scalar
from covey.deploy.secagg_codec import (
    ints,
    numbers,
    octets,
    packed_answer,
    packed_envelopes,
    packed_roster,
    typed,
    unpacked_answer,
    unpacked_envelopes,
)
from covey.security import (
    Aggregator,
    Client,
    CostRecord,
    Entropy,
    Envelope,
    MaskedSums,
    MaskedUpload,
    OpenedSums,
    Parameters,
    PublicKeys,
    SecurityError,
    SeededEntropy,
    Session,
    SystemEntropy,
    UnmaskAnswer,
    add_partials,
    unmask,
)
from covey.security.keys import KEY_BYTES, NONCE_BYTES, TAG_BYTES, agree
from covey.security.sharing import ELEMENT_BYTES, unpack

if TYPE_CHECKING:
    from covey.deploy.device import Device

#: Sends (header, arrays) to users, by user, and returns the successful answers.
Asking = Callable[[str, Mapping[int, tuple[dict[str, Scalar], dict[str, Array]]]], dict[int, Packet]]
#: Records a failed request: user, kind of request, status, reason.
Noting = Callable[[int, str, str, str], None]
#: The type that an answer is decoded to.
Read = TypeVar("Read")
#: The header fields of an upload request that define the step; the rest concerns masks, which are always new.
_STEP = ("run", "round", "user", "weights", "purpose", "task", "clip", "noise", "learning_rate", "batch", "metrics")


class MaskedDevice:
    """The device's side: a new protocol client for every attempt at a round, in memory only."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._client: Client | None = None
        self._session: Session | None = None
        self.does: dict[str, Callable[[Packet], Packet]] = {
            "keys": self._keys,
            "shares": self._shares,
            "upload": self._upload,
            "counts": self._counts,
            "reveal": self._reveal,
        }

    def _keys(self, request: Packet) -> Packet:
        header, device = request.header, self._device
        if not device.masked:
            raise ValueError("this device's scenario has security.mode = 'none'")
        security = device.scenario.security
        parameters = Parameters(
            int(header["session_users"]), int(header["threshold"]), security.minimum, device.tasks, device.weights
        )
        self._session = Session(parameters, str(header["run"]), int(header["round"]))
        entropy: Entropy = SystemEntropy()
        if device.scenario.privacy.noise != "secure":
            entropy = SeededEntropy(device.folder.seed).child(int(header["round"]), device.user)
        index = int(header["index"])
        self._client = Client(self._session, index, device.task_of(request), entropy)
        keys = self._client.advertise()
        return Packet({"status": "ok"}, {"keys/envelope": octets(keys.envelope), "keys/mask": octets(keys.mask)})

    def _shares(self, request: Packet) -> Packet:
        index, envelope, mask = (numbers(request, f"roster/{name}") for name in ("index", "envelope", "mask"))
        client = self._open(request)
        client.agree(
            PublicKeys(int(user), one.tobytes(), other.tobytes())
            for user, one, other in zip(index, envelope, mask, strict=True)
        )
        return Packet({"status": "ok"}, packed_envelopes(client.share()))

    def _upload(self, request: Packet) -> Packet:
        client, device = self._open(request), self._device
        client.accept(unpacked_envelopes(request))
        step = Packet({name: request.header[name] for name in _STEP} | {"kind": "train"})
        released = device.once(step, lambda: device.release(step))
        weights = np.frombuffer(released.arrays["upload/weights"][2], np.float32)
        words = client.upload(weights, device.samples).words
        told = {name: value for name, value in released.header.items() if name in ("mean_norm", "clipped_fraction")}
        return Packet({"status": "ok", **told}, {"upload/words": ("uint64", words.shape, words.tobytes())})

    def _counts(self, request: Packet) -> Packet:
        survivors = [int(user) for user in numbers(request, "survivors/index")]
        return Packet({"status": "ok"}, packed_envelopes(self._open(request).count(survivors)))

    def _reveal(self, request: Packet) -> Packet:
        return Packet({"status": "ok"}, packed_answer(self._open(request).reveal(unpacked_envelopes(request))))

    def _open(self, request: Packet) -> Client:
        """The client of the request's session."""
        session = self._session
        asked = (str(request.header["run"]), int(request.header["round"]))
        if self._client is None or session is None or (session.run, session.round) != asked:
            raise ValueError("this device has no keys of this round; it may have been restarted")
        return self._client


class MaskedRound:
    """The server's side: relays keys and envelopes, sums masked uploads, and opens the sums that users allow.

    users: (n,) participants; their index in it is their number in the protocol. stations: (n,). Every answer is
    validated before it is relayed; a user with a malformed answer is recorded and counts as dropped out.
    """

    def __init__(
        self, parameters: Parameters, run: str, round: int, users: Sequence[int], stations: Sequence[int], note: Noting
    ) -> None:
        self.session = Session(parameters, run, round)
        self.users = list(users)
        self._index = {user: number for number, user in enumerate(self.users)}
        self._station = {index: int(station) for index, station in enumerate(stations)}
        self._note = note
        self.cost = CostRecord(len(self.users))
        self._keys: dict[int, PublicKeys] = {}
        self._sharers: list[int] = []
        self._aggregators = {station: Aggregator(self.session) for station in set(self._station.values())}
        self.arrived: list[int] = []

    def collect(self, ask: Asking, steps: Mapping[int, dict[str, Scalar]]) -> dict[int, Packet]:
        """Keys, shares and uploads; returns the answers of users whose uploads arrived. `steps`: by user."""
        p, index = self.session.parameters, self._index
        told = ask("keys", {
            user: (steps[user] | {"session_users": p.users, "threshold": p.threshold, "index": index[user]}, {})
            for user in self.users
        })  # fmt: skip
        self._read("keys", told, self._take_keys)
        if len(self._keys) < p.threshold:
            return {}
        roster = packed_roster(list(self._keys.values()))
        shared = ask("shares", {user: (steps[user], roster) for user in self.users if index[user] in self._keys})
        mailed = self._mailed("shares", shared, self._keys, 2 * p.slots + 1)
        self._sharers = sorted(index[user] for user in mailed)
        if len(self._sharers) < p.threshold:
            return {}
        sent = ask("upload", {user: (steps[user], _for(index[user], mailed)) for user in mailed})
        return {user: sent[user] for user in self._read("upload", sent, self._take_upload)}

    def open(self, ask: Asking) -> MaskedSums:
        """Counts and unmasking: the sums of the tasks with enough users."""
        p = self.session.parameters
        nothing = OpenedSums(
            np.full((p.slots, p.length), np.nan),
            np.zeros(p.slots, np.int64),
            np.full(p.slots, -1),
            np.zeros(p.slots, bool),
        )
        failure: str | None = None
        try:
            opened = self._opened(ask)
        except (SecurityError, ValueError) as error:
            failure, opened = str(error), nothing
        uploaded = np.isin(np.arange(p.users), self.arrived)
        return MaskedSums(
            opened.sums, opened.samples, opened.counts, opened.opened, uploaded, {}, failure, self.cost, None
        )

    def _opened(self, ask: Asking) -> OpenedSums:
        p, index = self.session.parameters, self._index
        total = add_partials([aggregator.partial() for aggregator in self._aggregators.values()])
        survivors = {"survivors/index": ints(total.users)}
        counted = ask("counts", {user: ({}, survivors) for user in self.users if index[user] in self.arrived})
        mailed = self._mailed("counts", counted, self.arrived, p.slots)
        told = ask("reveal", {user: ({}, _for(index[user], mailed)) for user in mailed})
        dropped = set(self._sharers) - set(total.users)
        answers = self._read("reveal", told, lambda user, packet: self._answer(user, packet, set(total.users), dropped))
        # Honest users agree on the counts, and they are the majority.
        most = Counter(answer.counts for answer in answers.values()).most_common(1)
        for user, answer in list(answers.items()):
            if answer.counts != most[0][0]:
                self._note(
                    user, "reveal", "garbage", f"it counts {answer.counts} users of the tasks, most {most[0][0]}"
                )
                del answers[user]
        for answer in answers.values():
            self.cost.up_bytes["unmask"][answer.user] += answer.size
        return unmask(self.session, total, self._keys, self._sharers, list(answers.values()))

    def _read(self, phase: str, packets: Mapping[int, Packet], read: Callable[[int, Packet], Read]) -> dict[int, Read]:
        """Decode the answers of a phase by `read(user, packet)`, in order of users; malformed ones are recorded."""
        found = {}
        for user, packet in sorted(packets.items()):
            try:
                found[user] = read(user, packet)
            except (KeyError, ValueError, SecurityError) as error:
                reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
                self._note(user, phase, "garbage", reason)
        return found

    def _take_keys(self, user: int, packet: Packet) -> None:
        """Check and store both public keys of a user: 32 bytes each, unique, and valid for key agreement."""
        envelope, mask = (typed(packet, f"keys/{name}", np.uint8).tobytes() for name in ("envelope", "mask"))
        taken = {key for keys in self._keys.values() for key in (keys.envelope, keys.mask)}
        if len(envelope) != KEY_BYTES or len(mask) != KEY_BYTES or envelope == mask or {envelope, mask} & taken:
            raise ValueError(f"keys must be {KEY_BYTES} bytes each, and unique")
        for key in (envelope, mask):
            agree(bytes([1]) * KEY_BYTES, key)
        keys = PublicKeys(self._index[user], envelope, mask)
        self._keys[keys.user] = keys
        self.cost.up_bytes["keys"][keys.user] += keys.size

    def _take_upload(self, user: int, packet: Packet) -> None:
        """Add a user's masked words to the sum of its station, which checks their type and shape."""
        number = self._index[user]
        words: Any = numbers(packet, "upload/words")
        upload = MaskedUpload(number, words)
        self._aggregators[self._station[number]].receive(upload)
        self.cost.up_bytes["upload"][number] += upload.size
        self.arrived.append(number)

    def _mailed(
        self, phase: str, packets: Mapping[int, Packet], peers: Collection[int], secrets: int
    ) -> dict[int, list[Envelope]]:
        """The envelopes of these answers, by user; each user sends one to each of the other `peers`.

        Stations cannot decrypt envelopes, but know the length of one with `secrets` shares. A missing or malformed
        envelope would block its receiver.
        """
        size = NONCE_BYTES + TAG_BYTES + secrets * ELEMENT_BYTES

        def read(user: int, packet: Packet) -> list[Envelope]:
            envelopes, number = unpacked_envelopes(packet), self._index[user]
            if any(envelope.sender != number or len(envelope.payload) != size for envelope in envelopes):
                raise ValueError(f"an envelope is not from user {user}, or does not have {size} bytes")
            if sorted(envelope.receiver for envelope in envelopes) != sorted(set(peers) - {number}):
                raise ValueError("there must be one envelope for each of the other users")
            return envelopes

        mailed = self._read(phase, packets, read)
        for envelope in (envelope for envelopes in mailed.values() for envelope in envelopes):
            self.cost.up_bytes[phase][envelope.sender] += envelope.size
            self.cost.down_bytes[phase][envelope.receiver] += envelope.size
        return mailed

    def _answer(self, user: int, packet: Packet, survivors: set[int], dropped: set[int]) -> UnmaskAnswer:
        """Decode a user's answer: exactly the shares needed to open the tasks that are large enough."""
        p, answer = self.session.parameters, unpacked_answer(self._index[user], packet)
        if len(answer.counts) != p.slots or min(answer.counts) < 0 or sum(answer.counts) != len(survivors):
            raise ValueError(f"the counts {answer.counts} do not add up to {len(survivors)} users in {p.slots} tasks")
        large = {slot for slot, count in enumerate(answer.counts) if count >= p.minimum}
        if set(answer.seed_shares) != large or any(set(row) != survivors for row in answer.seed_shares.values()):
            raise ValueError("these are not the shares of the large enough tasks")
        if set(answer.key_shares) != (dropped if large else set()):
            raise ValueError("these are not the shares of the users who dropped out")
        for share in (*answer.key_shares.values(), *(s for row in answer.seed_shares.values() for s in row.values())):
            unpack(share, 1)
        return answer


def _for(number: int, mailed: Mapping[int, Sequence[Envelope]]) -> dict[str, Array]:
    """The envelopes for one user, packed."""
    return packed_envelopes([e for envelopes in mailed.values() for e in envelopes if e.receiver == number])
