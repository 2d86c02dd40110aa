"""Which node is which user: nodes that come, go, come back, lie, or are there twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from covey.deploy.app.wire import Packet
from covey.errors import DeployError

pytest.importorskip("flwr", reason="Flower is not installed; make test-deploy installs it")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from covey.deploy.courier import FlowerCourier, _message, _packet

Answer = Callable[[int, Message], Message | None]


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages belong to a run of a node, which Flower sets in its processes."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1, raising=False)


class Grid:
    """Nodes that answer in this process."""

    def __init__(self, users: dict[int, int]) -> None:
        self.users = users
        self.answers: dict[str, Message] = {}
        self.asked: list[int] = []
        self.silent: set[int] = set()

    def get_node_ids(self) -> list[int]:
        return list(self.users)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            name = f"message-{len(self.asked)}"
            node = message.metadata.dst_node_id
            self.asked.append(node)
            names.append(name)
            if node in self.silent or node not in self.users:
                continue
            content = RecordDict({"covey": ConfigRecord({"status": "ok", "user": self.users[node], "value": 0.5})})
            message.metadata.__dict__["_message_id"] = name
            self.answers[name] = Message(content, reply_to=message)
        return names

    def pull_messages(self, names: Iterable[str]) -> list[Message]:
        return [self.answers.pop(name) for name in names if name in self.answers]


def courier(users: dict[int, int], patience_s: float = 0.5) -> tuple[Any, FlowerCourier]:
    grid: Any = Grid(users)
    return grid, FlowerCourier(grid, 2, patience_s)


def requests() -> dict[int, Packet]:
    return {user: Packet({"kind": "train", "round": 0, "station": 1}) for user in (0, 1)}


def test_every_user_is_asked_at_its_own_node() -> None:
    _, over = courier({70: 1, 71: 0})
    assert set(over.roll_call(1.0)) == {0, 1}
    answers = over.exchange(requests())
    assert {user: packet.header["user"] for user, packet in answers.items()} == {0: 0, 1: 1}
    assert over.exchange({}) == {}


def test_missing_strange_and_double_users_are_named() -> None:
    with pytest.raises(DeployError, match=r"1 of 2 users are missing \(users 1\)"):
        courier({70: 0})[1].roll_call(0.5)
    with pytest.raises(DeployError, match="says that it is user 7"):
        courier({70: 0, 71: 7})[1].roll_call(0.5)
    with pytest.raises(DeployError, match="user 0 is there twice"):
        courier({70: 0, 71: 0})[1].roll_call(0.5)


def test_a_node_that_is_gone_is_left_out_and_found_again_under_another_id() -> None:
    grid, over = courier({70: 0, 71: 1})
    over.roll_call(1.0)
    del grid.users[71]
    assert set(over.exchange(requests())) == {0}
    grid.users[99] = 1
    assert set(over.exchange(requests())) == {0, 1}
    # The old node is still listed while a new one has come: the newest counts.
    grid.users[100] = 1
    over.exchange(requests())
    grid.silent.add(99)
    assert set(over.exchange(requests())) == {0, 1}


def test_a_silent_node_costs_no_more_than_the_patience() -> None:
    grid, over = courier({70: 0, 71: 1})
    over.roll_call(1.0)
    grid.silent.add(70)
    assert set(over.exchange(requests())) == {1}
    # A node that never says hello is not waited for.
    grid.users[72] = 5
    grid.silent |= {72}
    assert set(over.exchange({1: requests()[1]})) == {1}


def test_packets_survive_messages_and_nonsense_has_a_status() -> None:
    words = np.arange(6, dtype=np.uint64).reshape(2, 3)
    packet = Packet(
        {"kind": "train", "a": 1, "b": 0.5, "c": "x", "d": True}, {"n/w": ("uint64", (2, 3), words.tobytes())}
    )
    message = _message(7, packet, 5.0)
    assert message.metadata.message_type == "train"
    assert _packet(message) == packet
    assert _packet(Message(Error(code=0, reason="gone"), reply_to=message)).header["status"] == "failed"
    assert _packet(Message(RecordDict({}), reply_to=message)).header["status"] == "garbage"
    odd = RecordDict({"covey": ConfigRecord({}), "x": ArrayRecord({"y": Array(np.zeros(2, dtype=np.complex64))})})
    assert _packet(Message(odd, reply_to=message)).header["status"] == "garbage"
