"""Serialises packets as the contents of Flower messages, for the ClientApp and the server's courier.

The input is untrusted. Arrays are sliced from the received bytes after their headers are validated: nothing is
unpickled, and no memory is allocated by a claimed size.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from .wire import DTYPES, Array, Packet, Scalar, WireError

#: The record that holds the header.
_HEADER = "covey"
#: The only accepted serialisation type of arrays, by Flower's name, and the maximal size of the .npy header.
_KIND, _DESCRIPTION_BYTES = "numpy.ndarray", 1000


def content_of(packet: Packet) -> RecordDict:
    """The content of a message with this packet."""
    records: dict[str, Any] = {_HEADER: ConfigRecord(dict(packet.header))}
    grouped: dict[str, dict[str, FlowerArray]] = {}
    for path, (kind, shape, data) in packet.arrays.items():
        name, _, key = path.partition("/")
        grouped.setdefault(name, {})[key] = FlowerArray(np.frombuffer(data, dtype=kind).reshape(shape))
    records |= {name: ArrayRecord(arrays) for name, arrays in grouped.items()}
    return RecordDict(records)


def packet_of(content: RecordDict) -> Packet:
    """The packet that `content_of` put into a message; `WireError` when it is anything else."""
    try:
        given = content.config_records[_HEADER]
        header = {str(key): value for key, value in given.items() if isinstance(value, Scalar)}
        arrays = {
            f"{name}/{key}": _cut_out(array)
            for name, record in content.array_records.items()
            for key, array in record.items()
        }
    except Exception as error:  # the input may be arbitrary
        raise WireError(f"{type(error).__name__}: {error}") from None
    return Packet(header, arrays)


def _cut_out(array: FlowerArray) -> Array:
    """Type, shape and bytes of an array in .npy format version 1, which Flower uses."""
    if array.stype != _KIND:
        raise WireError(f"an array is sent as {array.stype!r}")
    file = io.BytesIO(array.data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise WireError("an array is in another version of the .npy format")
    shape, columns_first, kind = np.lib.format.read_array_header_1_0(file, max_header_size=_DESCRIPTION_BYTES)
    if kind.name not in DTYPES or kind != np.dtype(kind.name) or columns_first:
        raise WireError(f"an array holds {kind.str}")
    left = len(array.data) - file.tell()
    if any(side < 0 for side in shape) or DTYPES[kind.name] * math.prod(shape) != left:
        raise WireError(f"an array of shape {shape} has {left} bytes")
    return kind.name, tuple(int(side) for side in shape), array.data[file.tell() :]
