"""Transport of packets to devices through Flower: every packet is a message to a SuperNode.

Imports Flower, which is optional: import this where a run is served.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import httpx
from flwr.app import Message
from flwr.serverapp import Grid

from covey.deploy.app.records import content_of, packet_of
from covey.deploy.app.wire import Packet
from covey.deploy.processes import NODE_NAME
from covey.errors import DeployError

#: Polling interval for answers in seconds.
PAUSE_S = 0.2
#: Timeout of a hello in seconds; a node that was restarted has lost it and gets another one then.
HELLO_S = 60.0
#: Seconds after which the SuperLink has detected a lost node: two heartbeats of 30 s, and a margin.
GONE_S = 90.0
_TYPES = {"train": "train", "evaluate": "evaluate"}
#: Validates a device's hello; raises a `DeployError` if it may not take part as this user.
Check = Callable[[int, Packet], object]


class FlowerCourier:
    """Exchanges messages with the users' SuperNodes over a grid.

    `patience_s` is the timeout of an exchange. `roll_call` maps nodes to users; nodes that connect later, or
    reconnect under another id, are mapped before the next exchange. The first node of a user is used; a second one is
    a standby until the first disconnects. A node registered under the name of a user can only be that user.
    """

    def __init__(self, grid: Grid, users: int, patience_s: float, check: Check) -> None:
        self._grid, self._users, self.patience_s, self._check = grid, users, patience_s, check
        #: Nodes of each user in order of arrival; requests go to the first.
        self._nodes: dict[int, list[int]] = {}
        self._said: dict[int, Packet] = {}
        self._strangers: set[int] = set()
        #: Pending hellos by message id: the node, and when the hello expires.
        self._greeted: dict[str, tuple[int, float]] = {}
        self._singly = False

    @property
    def hellos(self) -> dict[int, Packet]:
        """The hello of every connected device, by user."""
        return {user: self._said[nodes[0]] for user, nodes in sorted(self._nodes.items())}

    def roll_call(self, wait_s: float) -> dict[int, Packet]:
        """Wait for the hellos of all users' devices; an error names missing or duplicate users."""
        deadline, twice_since = time.monotonic() + wait_s, None
        while True:
            self._greet(strict=True)
            missing = sorted(set(range(self._users)) - set(self._nodes))
            twice = sorted(user for user, nodes in self._nodes.items() if len(nodes) > 1)
            now = time.monotonic()
            # One of the two may just have been stopped, which the SuperLink detects with a delay.
            twice_since = (now if twice_since is None else twice_since) if twice else None
            if twice_since is not None and (now - twice_since > GONE_S or now > deadline):
                raise DeployError(f"user {twice[0]} is connected twice; stop one of its two devices")
            if not missing and not twice:
                return self.hellos
            if now > deadline:
                listed = ", ".join(str(user) for user in missing[:10])
                raise DeployError(
                    f"after {wait_s:g} s the devices of {len(missing)} of {self._users} users are missing (users"
                    f" {listed}); start them with covey deploy node, or wait longer with --wait"
                )
            time.sleep(PAUSE_S)

    def exchange(self, requests: Mapping[int, Packet]) -> dict[int, Packet]:
        """Answers by user; users without a connected node are skipped."""
        if not requests:
            return {}
        self._greet(strict=False)
        at = {user: self._nodes[user][0] for user in requests if user in self._nodes}
        answers = self._send({node: requests[user] for user, node in at.items()}, self.patience_s)
        return {user: answers[node] for user, node in at.items() if node in answers}

    def _greet(self, *, strict: bool) -> None:
        """Send hellos to new nodes, process the answers so far, drop disconnected nodes; does not block."""
        present = {int(node.node_id): str(node.name) for node in self._grid.get_nodes()}
        there = {user: [node for node in nodes if node in present] for user, nodes in self._nodes.items()}
        self._nodes = {user: nodes for user, nodes in there.items() if nodes}
        self._strangers &= present.keys()
        now = time.monotonic()
        self._greeted = {
            name: (node, until) for name, (node, until) in self._greeted.items() if node in present and now < until
        }
        known = {node for nodes in self._nodes.values() for node in nodes} | self._strangers
        new = sorted(present.keys() - known - {node for node, _ in self._greeted.values()})
        if new:
            hellos = [_message(node, Packet({"kind": "hello"}), HELLO_S) for node in new]
            names = zip(self._grid.push_messages(hellos), new, strict=False)
            self._greeted |= {name: (node, now + HELLO_S) for name, node in names if name}
        for name, packet in self._pull(list(self._greeted)):
            node, _ = self._greeted.pop(name)
            self._meet(node, present[node], packet, strict=strict)

    def _meet(self, node: int, name: str, packet: Packet, *, strict: bool) -> None:
        """Map a node to the user it claims to be, if that is allowed."""
        if packet.header.get("status") != "ok":
            return  # another hello follows while it is connected
        user = packet.header.get("user", -1)
        try:
            if isinstance(user, bool) or not isinstance(user, int) or not 0 <= user < self._users:
                raise DeployError(
                    f"a node says that it is user {user}, but the scenario has users 0 to {self._users - 1};"
                    " start every device with its own folder of covey deploy prepare"
                )
            bound = re.fullmatch(NODE_NAME, name)
            if bound is not None and int(bound[1]) != user:
                raise DeployError(
                    f"the node with the key of user {int(bound[1])} says that it is user {user}; start every device"
                    " with its own folder and its own key"
                )
            self._check(user, packet)
        except DeployError:
            self._strangers.add(node)
            if strict:
                raise
            return
        self._nodes.setdefault(user, []).append(node)
        self._said[node] = packet

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
            for name, packet in self._pull(list(waiting)):
                answers[waiting.pop(name)] = packet
            if waiting:
                time.sleep(PAUSE_S)
        return answers

    def _pull(self, names: Sequence[str]) -> Iterator[tuple[str, Packet]]:
        """The answers that have arrived, each once, by message id of the request.

        A reply that Flower cannot deserialise loses all replies of the same pull, because each is delivered once.
        So after the first such reply they are pulled one by one.
        """
        left = set(names)
        batches = [[name] for name in names] if self._singly else [list(names)] if names else []
        for batch in batches:
            try:
                messages = list(self._grid.pull_messages(batch))
            except (httpx.HTTPError, OSError):
                raise  # the SuperLink, not a device
            except Exception as error:
                self._singly = True
                if len(batch) == 1:
                    left.discard(batch[0])
                    yield batch[0], _garbage(error)
                continue
            for message in messages:
                name = message.metadata.reply_to_message_id
                if name in left:
                    left.discard(name)
                    yield name, _packet(message)


def _message(node: int, packet: Packet, wait_s: float) -> Message:
    kind = str(packet.header["kind"])
    group = f"{packet.header.get('round', '')}/{packet.header.get('station', '')}"
    # The message expires with the timeout: a later answer would be ignored.
    return Message(content_of(packet), node, _TYPES.get(kind, "query"), ttl=max(wait_s, 1.0), group_id=group)


def _packet(message: Message) -> Packet:
    """The answer of a node; errors and malformed answers become packets with such a status."""
    if message.has_error():
        return Packet({"status": "failed", "reason": f"Flower reports: {message.error.reason}"})
    try:
        return packet_of(message.content)
    except ValueError as error:
        return _garbage(error)


def _garbage(error: Exception) -> Packet:
    return Packet({"status": "garbage", "reason": f"the answer cannot be read ({error})"})
