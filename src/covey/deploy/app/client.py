"""The ClientApp: passes every message of the server to the device's worker, and its answer back.

It computes nothing and holds nothing: data, models, noise and ledger are the worker's. Flower starts a process for
every message, so that this file imports neither torch nor covey.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from .wire import Packet, ask

app = ClientApp()


@app.query()
@app.train()
@app.evaluate()
def answer(message: Message, context: Context) -> Message:
    """The worker's answer to a message."""
    given = message.content.config_records["covey"]
    header = {key: value for key, value in given.items() if isinstance(value, (bool, int, float, str))}
    arrays = {}
    for name, record in message.content.array_records.items():
        for key, array in record.items():
            values = np.ascontiguousarray(array.numpy())
            arrays[f"{name}/{key}"] = (values.dtype.name, values.shape, values.tobytes())
    try:
        told = ask(Path(str(context.node_config["covey-folder"])), Packet(header, arrays))
    except (OSError, EOFError, ValueError) as error:
        told = Packet({"status": "failed", "reason": f"the device's worker does not answer ({error})"})
    return Message(content=_content(told), reply_to=message)


def _content(packet: Packet) -> RecordDict:
    records: dict[str, Any] = {"covey": ConfigRecord(dict(packet.header))}
    grouped: dict[str, dict[str, Array]] = {}
    for path, (kind, shape, data) in packet.arrays.items():
        name, _, key = path.partition("/")
        grouped.setdefault(name, {})[key] = Array(np.frombuffer(data, dtype=kind).reshape(shape))
    records |= {name: ArrayRecord(arrays) for name, arrays in grouped.items()}
    return RecordDict(records)
