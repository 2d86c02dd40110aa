"""Codec of secure aggregation: keys, envelopes and answers to and from arrays of packets.

Neither side trusts the other: decoding raises `KeyError` or `ValueError` where an array is missing, has another dtype,
or is inconsistent with the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.deploy.app.wire import Array, Packet
from covey.security import Envelope, PublicKeys, UnmaskAnswer
from covey.security.keys import KEY_BYTES
from covey.security.sharing import ELEMENT_BYTES


def typed(packet: Packet, name: str, kind: type[np.generic]) -> NDArray[Any]:
    """A vector of this dtype; `KeyError` or `ValueError` if it is missing or of another type or shape."""
    found = numbers(packet, name)
    if found.dtype != kind or found.ndim != 1:
        raise ValueError(f"'{name}' is {found.dtype} of shape {found.shape}; it must be a row of {np.dtype(kind)}")
    return found


def numbers(packet: Packet, name: str) -> NDArray[np.generic]:
    """An array of a packet."""
    kind, shape, data = packet.arrays[name]
    return np.frombuffer(data, dtype=kind).reshape(shape)


def packed_envelopes(envelopes: Sequence[Envelope]) -> dict[str, Array]:
    """Envelopes as arrays: senders, receivers, lengths, and the concatenated payloads."""
    return {
        "envelopes/sender": ints([e.sender for e in envelopes]),
        "envelopes/receiver": ints([e.receiver for e in envelopes]),
        "envelopes/length": ints([len(e.payload) for e in envelopes]),
        "envelopes/payload": octets(b"".join(e.payload for e in envelopes)),
    }


def unpacked_envelopes(packet: Packet) -> list[Envelope]:
    """The inverse of `packed_envelopes`."""
    rows = [typed(packet, f"envelopes/{name}", np.int64).tolist() for name in ("sender", "receiver", "length")]
    payload, at, found = packet.arrays["envelopes/payload"][2], 0, []
    if min(rows[2], default=0) < 0 or sum(rows[2]) != len(payload):
        raise ValueError(f"the envelopes have {sum(rows[2])} bytes by their lengths, but {len(payload)}")
    for sender, receiver, size in zip(*rows, strict=True):
        found.append(Envelope(sender, receiver, payload[at : at + size]))
        at += size
    return found


def packed_answer(answer: UnmaskAnswer) -> dict[str, Array]:
    """An answer as arrays: counts, and for every share its slot (-1 for a key), its user and its bytes."""
    rows = [(slot, user, share) for slot, row in answer.seed_shares.items() for user, share in row.items()]
    rows += [(-1, user, share) for user, share in answer.key_shares.items()]
    return {
        "answer/counts": ints(answer.counts),
        "answer/slot": ints([slot for slot, _, _ in rows]),
        "answer/user": ints([user for _, user, _ in rows]),
        "answer/share": octets(b"".join(share for _, _, share in rows)),
    }


def unpacked_answer(user: int, packet: Packet) -> UnmaskAnswer:
    """The inverse of `packed_answer`."""
    counts, slots, users = (typed(packet, f"answer/{name}", np.int64).tolist() for name in ("counts", "slot", "user"))
    data = packet.arrays["answer/share"][2]
    if len(data) != ELEMENT_BYTES * len(slots):
        raise ValueError(f"{len(slots)} shares have {ELEMENT_BYTES} bytes each, got {len(data)} in all")
    seeds: dict[int, dict[int, bytes]] = {}
    keys: dict[int, bytes] = {}
    for number, (slot, owner) in enumerate(zip(slots, users, strict=True)):
        share = data[number * ELEMENT_BYTES : (number + 1) * ELEMENT_BYTES]
        (keys if slot < 0 else seeds.setdefault(slot, {}))[owner] = share
    return UnmaskAnswer(user, tuple(counts), seeds, keys)


def packed_roster(keys: Sequence[PublicKeys]) -> dict[str, Array]:
    """The public keys of all participants, one row each."""
    envelope, mask = b"".join(k.envelope for k in keys), b"".join(k.mask for k in keys)
    shape = (len(keys), KEY_BYTES)
    return {
        "roster/index": ints([k.user for k in keys]),
        "roster/envelope": ("uint8", shape, envelope),
        "roster/mask": ("uint8", shape, mask),
    }


def ints(values: Sequence[int]) -> Array:
    """A vector of integers."""
    return "int64", (len(values),), np.asarray(values, dtype=np.int64).tobytes()


def octets(content: bytes) -> Array:
    """A vector of bytes."""
    return "uint8", (len(content),), content
