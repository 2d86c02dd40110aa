"""Brings packets to devices through Flower: every packet is a message to a SuperNode."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from covey.deploy.app.wire import DTYPES, Array, Packet
from covey.errors import DeployError

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

#: Seconds between two looks for answers.
PAUSE_S = 0.2
#: Seconds for which a hello is worth answering.
_HELLO_S = 3600.0
_TYPES = {"train": "train", "evaluate": "evaluate"}


class FlowerCourier:
    """Messages over a grid to the SuperNodes of users.

    `patience_s` is how long an exchange waits for answers. `roll_call` finds out which node is which user;
    nodes that come later, or come back under another id, are found before the next exchange.
    """

    def __init__(self, grid: Grid, users: int, patience_s: float, say: Callable[[str], None] = print) -> None:
        self._grid, self._users, self.patience_s, self._say = grid, users, patience_s, say
        self._nodes: dict[int, int] = {}
        self._strangers: set[int] = set()
        self._greeted: dict[str, int] = {}
        self.hellos: dict[int, Packet] = {}

    def roll_call(self, wait_s: float) -> dict[int, Packet]:
        """What every user's device said about itself; an error names users that are missing or there twice."""
        deadline = time.monotonic() + wait_s
        while True:
            self._greet(strict=True)
            missing = sorted(set(range(self._users)) - set(self._nodes))
            if not missing:
                return self.hellos
            if time.monotonic() > deadline:
                listed = ", ".join(str(user) for user in missing[:10])
                raise DeployError(
                    f"after {wait_s:g} s the devices of {len(missing)} of {self._users} users are missing (users"
                    f" {listed}); start them with covey deploy node, or wait longer with --wait"
                )
            time.sleep(PAUSE_S)

    def exchange(self, requests: Mapping[int, Packet]) -> dict[int, Packet]:
        """Answers by user; users without a node are left out at once."""
        if not requests:
            return {}
        self._greet(strict=False)
        at = {user: self._nodes[user] for user in requests if user in self._nodes}
        answers = self._send({node: requests[user] for user, node in at.items()}, self.patience_s)
        return {user: answers[node] for user, node in at.items() if node in answers}

    def _greet(self, *, strict: bool) -> None:
        """Say hello to nodes that are new, hear those that answer, forget those that are gone; waits for nobody."""
        present = set(self._grid.get_node_ids())
        self._nodes = {user: node for user, node in self._nodes.items() if node in present}
        new = sorted(present - set(self._nodes.values()) - self._strangers - set(self._greeted.values()))
        if new:
            hellos = [_message(node, Packet({"kind": "hello"}), _HELLO_S) for node in new]
            self._greeted |= {
                name: node for name, node in zip(self._grid.push_messages(hellos), new, strict=False) if name
            }
        if self._greeted:
            for message in self._grid.pull_messages(list(self._greeted)):
                node = self._greeted.pop(message.metadata.reply_to_message_id, None)
                if node is not None and node in present:
                    self._meet(node, _packet(message), strict=strict)

    def _meet(self, node: int, packet: Packet, *, strict: bool) -> None:
        """Take a node for the user that it says it is."""
        if packet.header.get("status") != "ok":
            return  # it is greeted again as long as it is there
        user = packet.header.get("user", -1)
        if not isinstance(user, int) or not 0 <= user < self._users:
            self._strangers.add(node)
            if strict:
                raise DeployError(
                    f"a node says that it is user {user}, but the scenario has users 0 to {self._users - 1};"
                    " start every device with its own folder of covey deploy prepare"
                )
            return
        if user in self._nodes:
            if strict:
                raise DeployError(f"user {user} is there twice; stop one of its two devices")
            # The newest counts: a device that was restarted is known under its old id for a while.
            self._strangers.add(self._nodes[user])
        self._nodes[user] = node
        self.hellos[user] = packet

    def _send(self, packets: Mapping[int, Packet], wait_s: float) -> dict[int, Packet]:
        """Answers by node."""
        if not packets:
            return {}
        nodes = sorted(packets)
        given = list(self._grid.push_messages([_message(node, packets[node], wait_s) for node in nodes]))
        waiting = {name: node for name, node in zip(given, nodes, strict=False) if name}
        answers: dict[int, Packet] = {}
        deadline = time.monotonic() + wait_s
        while waiting and time.monotonic() < deadline:
            for message in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(message.metadata.reply_to_message_id, None)
                if node is not None:
                    answers[node] = _packet(message)
            if waiting:
                time.sleep(PAUSE_S)
        return answers


def _message(node: int, packet: Packet, wait_s: float) -> Message:
    from flwr.app import Array as FlowerArray
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

    records: dict[str, Any] = {"covey": ConfigRecord(dict(packet.header))}
    grouped: dict[str, dict[str, FlowerArray]] = {}
    for path, (kind, shape, data) in packet.arrays.items():
        name, _, key = path.partition("/")
        grouped.setdefault(name, {})[key] = FlowerArray(np.frombuffer(data, dtype=kind).reshape(shape))
    records |= {name: ArrayRecord(arrays) for name, arrays in grouped.items()}
    kind = str(packet.header["kind"])
    group = f"{packet.header.get('round', '')}/{packet.header.get('station', '')}"
    # Nobody waits for an answer after `wait_s`, so that a node need not bring it then.
    return Message(RecordDict(records), node, _TYPES.get(kind, "query"), ttl=max(wait_s, 1.0), group_id=group)


def _packet(message: Message) -> Packet:
    """What a node answered; anything that is no answer of ours has a status that says so."""
    if message.has_error():
        return Packet({"status": "failed", "reason": f"Flower reports: {message.error.reason}"})
    try:
        header = dict(message.content.config_records["covey"])
        arrays: dict[str, Array] = {}
        for name, record in message.content.array_records.items():
            for key, array in record.items():
                values = np.ascontiguousarray(array.numpy())
                if values.dtype.name not in DTYPES:
                    raise ValueError(f"'{name}' holds {values.dtype.name}")
                arrays[f"{name}/{key}"] = (values.dtype.name, values.shape, values.tobytes())
    except (KeyError, ValueError, TypeError) as error:
        return Packet({"status": "garbage", "reason": f"the answer cannot be read ({error})"})
    return Packet({key: value for key, value in header.items() if isinstance(value, (bool, int, float, str))}, arrays)
