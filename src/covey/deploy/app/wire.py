"""The protocol between a device's ClientApp and its worker: packets of a flat header and named arrays, over a socket.

Only the standard library is imported here, because the ClientApp runs in a new process for every message and
must start fast. Arrays are (dtype, shape, bytes).
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, field
from multiprocessing.connection import Client
from pathlib import Path

#: Allowed dtypes of arrays, with their item size in bytes.
DTYPES = {"float32": 4, "float64": 8, "int64": 8, "uint64": 8, "uint8": 1}
ADDRESS, KEY = "worker.address", "worker.key"
#: Maximal path length of a Unix socket that is portable across systems.
SOCKET_PATH_BYTES = 100

Scalar = bool | int | float | str
Array = tuple[str, tuple[int, ...], bytes]


class WireError(ValueError):
    """A packet is malformed."""


@dataclass(frozen=True)
class Packet:
    """A request or an answer: `header` holds numbers, texts and flags, `arrays` dtype, shape and bytes by name."""

    header: dict[str, Scalar]
    arrays: dict[str, Array] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of the packed packet."""
        return len(pack(self))


def pack(packet: Packet) -> bytes:
    """The bytes of a packet."""
    listed = [[name, kind, list(shape), len(data)] for name, (kind, shape, data) in packet.arrays.items()]
    head = json.dumps({"header": packet.header, "arrays": listed}, sort_keys=True).encode()
    return b"".join([struct.pack(">I", len(head)), head, *(data for _, _, data in packet.arrays.values())])


def unpack(content: bytes) -> Packet:
    """The packet in these bytes; `WireError` when they are damaged."""
    try:
        (length,) = struct.unpack_from(">I", content)
        head = json.loads(content[4 : 4 + length])
        header, listed = head["header"], head["arrays"]
        if not isinstance(header, dict) or not all(isinstance(value, Scalar) for value in header.values()):
            raise WireError("the header is not a flat table")
        arrays: dict[str, Array] = {}
        at = 4 + length
        for name, kind, shape, size in listed:
            if size != DTYPES[kind] * math.prod(shape) or any(side < 0 for side in shape):
                raise WireError(f"array '{name}' does not have the size of its shape")
            arrays[str(name)] = (kind, tuple(shape), content[at : at + size])
            at += size
    except WireError:
        raise
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError(f"the packet is damaged ({error})") from None
    if at != len(content):
        raise WireError(f"the packet has {len(content)} bytes but says {at}")
    return Packet(header, arrays)


def ask(folder: Path, packet: Packet) -> Packet:
    """Send a packet to the worker and return its answer; `folder`: the device's private folder."""
    key = (folder / KEY).read_bytes()
    address = (folder / ADDRESS).read_text(encoding="utf-8")
    with Client(address, family="AF_UNIX", authkey=key) as connection:
        connection.send_bytes(pack(packet))
        return unpack(connection.recv_bytes())
