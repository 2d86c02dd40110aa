"""Secure aggregation as messages: the device's side and the server's side of `covey.security`, phase by phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from covey.deploy.app.wire import Array, Packet, Scalar
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

if TYPE_CHECKING:
    from covey.deploy.device import Device

#: Sends (header, arrays) to users, by user, and returns the good answers of those who gave one.
Asking = Callable[[str, Mapping[int, tuple[dict[str, Scalar], dict[str, Array]]]], dict[int, Packet]]
#: What of an upload request makes the step; the rest is about masks, which are new every time.
_STEP = ("run", "round", "user", "weights", "purpose", "task", "clip", "noise", "learning_rate", "batch", "metrics")


class MaskedDevice:
    """The device's side: one client of the protocol for every attempt at a round, in memory only."""

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
        return Packet({"status": "ok"}, {"keys/envelope": _bytes(keys.envelope), "keys/mask": _bytes(keys.mask)})

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
        """The client of the session that the request belongs to."""
        session = self._session
        if (
            self._client is None
            or session is None
            or (session.run, session.round)
            != (
                str(request.header["run"]),
                int(request.header["round"]),
            )
        ):
            raise ValueError("this device has no keys of this round; it may have been restarted")
        return self._client


class MaskedRound:
    """The server's side: passes keys and envelopes on, adds up words, and opens what users allow.

    users: (n,) who take part; their position in it is their number in the protocol. stations: (n,).
    """

    def __init__(
        self, parameters: Parameters, run: str, round: int, users: Sequence[int], stations: Sequence[int]
    ) -> None:
        self.session = Session(parameters, run, round)
        self.users = list(users)
        self._station = {index: int(station) for index, station in enumerate(stations)}
        self.cost = CostRecord(len(self.users))
        self._keys: dict[int, PublicKeys] = {}
        self._sharers: list[int] = []
        self._aggregators = {station: Aggregator(self.session) for station in set(self._station.values())}
        self.arrived: list[int] = []

    def collect(self, ask: Asking, steps: Mapping[int, dict[str, Scalar]]) -> dict[int, Packet]:
        """Keys, shares and uploads; answers of the users whose uploads arrived. `steps`: what each is to do."""
        p = self.session.parameters
        index = {user: number for number, user in enumerate(self.users)}
        told = ask("keys", {
            user: (steps[user] | {"session_users": p.users, "threshold": p.threshold, "index": index[user]}, {})
            for user in self.users
        })  # fmt: skip
        for user, packet in told.items():
            one, other = (numbers(packet, f"keys/{name}").tobytes() for name in ("envelope", "mask"))
            self._keys[index[user]] = PublicKeys(index[user], one, other)
            self.cost.up_bytes["keys"][index[user]] += self._keys[index[user]].size
        if len(self._keys) < p.threshold:
            return {}
        roster = _roster(list(self._keys.values()))
        present = [user for user in self.users if index[user] in self._keys]
        shared = ask("shares", {user: (steps[user], roster) for user in present})
        envelopes = self._mailed("shares", shared, index)
        self._sharers = sorted(index[user] for user in shared)
        if len(self._sharers) < p.threshold:
            return {}
        sent = ask("upload", {
            user: (steps[user], packed_envelopes([e for e in envelopes if e.receiver == index[user]]))
            for user in shared
        })  # fmt: skip
        good = {}
        for user in sorted(sent):
            try:
                words = numbers(sent[user], "upload/words")
                upload = MaskedUpload(index[user], np.asarray(words))
                self._aggregators[self._station[index[user]]].receive(upload)
            except (KeyError, ValueError, SecurityError):
                continue
            self.cost.up_bytes["upload"][index[user]] += upload.size
            self.arrived.append(index[user])
            good[user] = sent[user]
        return good

    def open(self, ask: Asking, step: dict[str, Scalar]) -> MaskedSums:
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
            opened = self._opened(ask, step)
        except (SecurityError, KeyError, ValueError) as error:
            failure, opened = str(error), nothing
        uploaded = np.isin(np.arange(p.users), self.arrived)
        return MaskedSums(
            opened.sums, opened.samples, opened.counts, opened.opened, uploaded, {}, failure, self.cost, None
        )

    def _opened(self, ask: Asking, step: dict[str, Scalar]) -> OpenedSums:
        index = {user: number for number, user in enumerate(self.users)}
        total = add_partials([aggregator.partial() for aggregator in self._aggregators.values()])
        survivors = _ints(total.users)
        there = [user for user in self.users if index[user] in self.arrived]
        counted = ask("counts", {user: (step, {"survivors/index": survivors}) for user in there})
        envelopes = self._mailed("counts", counted, index)
        told = ask("reveal", {
            user: (step, packed_envelopes([e for e in envelopes if e.receiver == index[user]])) for user in counted
        })  # fmt: skip
        answers = [unpacked_answer(index[user], told[user]) for user in sorted(told)]
        for answer in answers:
            self.cost.up_bytes["unmask"][answer.user] += answer.size
        return unmask(self.session, total, self._keys, self._sharers, answers)

    def _mailed(self, phase: str, packets: Mapping[int, Packet], index: Mapping[int, int]) -> list[Envelope]:
        """All envelopes of these answers; each must be from the user who sent it."""
        mailed = []
        for user, packet in sorted(packets.items()):
            for envelope in unpacked_envelopes(packet):
                if envelope.sender == index[user]:
                    self.cost.up_bytes[phase][index[user]] += envelope.size
                    self.cost.down_bytes[phase][envelope.receiver] += envelope.size
                    mailed.append(envelope)
        return mailed


def numbers(packet: Packet, name: str) -> NDArray[np.generic]:
    """An array of a packet."""
    kind, shape, data = packet.arrays[name]
    return np.frombuffer(data, dtype=kind).reshape(shape)


def packed_envelopes(envelopes: Sequence[Envelope]) -> dict[str, Array]:
    """Envelopes as arrays: senders, receivers, lengths, and all payloads one after the other."""
    return {
        "envelopes/sender": _ints([e.sender for e in envelopes]),
        "envelopes/receiver": _ints([e.receiver for e in envelopes]),
        "envelopes/length": _ints([len(e.payload) for e in envelopes]),
        "envelopes/payload": _bytes(b"".join(e.payload for e in envelopes)),
    }


def unpacked_envelopes(packet: Packet) -> list[Envelope]:
    """The envelopes that `packed_envelopes` packed."""
    sender, receiver, length = (numbers(packet, f"envelopes/{name}") for name in ("sender", "receiver", "length"))
    payload, at, found = packet.arrays["envelopes/payload"][2], 0, []
    for one, other, size in zip(sender.tolist(), receiver.tolist(), length.tolist(), strict=True):
        found.append(Envelope(int(one), int(other), payload[at : at + int(size)]))
        at += int(size)
    return found


def packed_answer(answer: UnmaskAnswer) -> dict[str, Array]:
    """An answer as arrays: counts, and for every share its slot (-1 for a key), its user and its bytes."""
    rows = [(slot, user, share) for slot, row in answer.seed_shares.items() for user, share in row.items()]
    rows += [(-1, user, share) for user, share in answer.key_shares.items()]
    return {
        "answer/counts": _ints(answer.counts),
        "answer/slot": _ints([slot for slot, _, _ in rows]),
        "answer/user": _ints([user for _, user, _ in rows]),
        "answer/share": _bytes(b"".join(share for _, _, share in rows)),
    }


def unpacked_answer(user: int, packet: Packet) -> UnmaskAnswer:
    """The answer that `packed_answer` packed."""
    counts, slots, users = (numbers(packet, f"answer/{name}").tolist() for name in ("counts", "slot", "user"))
    data = packet.arrays["answer/share"][2]
    size = len(data) // max(1, len(slots))
    seeds: dict[int, dict[int, bytes]] = {}
    keys: dict[int, bytes] = {}
    for number, (slot, owner) in enumerate(zip(slots, users, strict=True)):
        share = data[number * size : (number + 1) * size]
        (keys if slot < 0 else seeds.setdefault(int(slot), {}))[int(owner)] = share
    return UnmaskAnswer(user, tuple(int(count) for count in counts), seeds, keys)


def _roster(keys: Sequence[PublicKeys]) -> dict[str, Array]:
    envelope, mask = b"".join(k.envelope for k in keys), b"".join(k.mask for k in keys)
    shape = (len(keys), len(keys[0].envelope))
    return {
        "roster/index": _ints([k.user for k in keys]),
        "roster/envelope": ("uint8", shape, envelope),
        "roster/mask": ("uint8", shape, mask),
    }


def _ints(values: Sequence[int]) -> Array:
    return "int64", (len(values),), np.asarray(values, dtype=np.int64).tobytes()


def _bytes(content: bytes) -> Array:
    return "uint8", (len(content),), content
