"""Which node is which user: nodes that come, go, come back, lie, or are there twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from covey.deploy.app.wire import Packet
from covey.errors import DeployError

pytest.importorskip("flwr", reason="Flower is not installed; make test-deploy installs it")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from covey.deploy import courier as module
from covey.deploy.courier import FlowerCourier, _message, _packet

Answer = Callable[[int, Message], Message | None]


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages belong to a run of a node, which Flower sets in its processes."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1, raising=False)


class Grid:
    """Nodes that answer in this process; `users` by node, `names` of those that were registered under one."""

    def __init__(self, users: dict[int, int]) -> None:
        self.users = users
        self.names: dict[int, str] = {}
        self.answers: dict[str, Message] = {}
        self.asked: list[int] = []
        self.silent: set[int] = set()
        self.broken: set[int] = set()

    def get_nodes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_id=node, name=self.names.get(node, "")) for node in self.users]

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
        found = {name: self.answers.pop(name) for name in names if name in self.answers}
        if any(self.asked[int(name.rpartition("-")[2])] in self.broken for name in found):
            raise RuntimeError("this reply cannot be put together")  # and the others are lost with it
        return list(found.values())


def courier(
    users: dict[int, int], patience_s: float = 0.5, check: Callable[[int, Packet], object] = lambda user, packet: None
) -> tuple[Any, FlowerCourier]:
    grid: Any = Grid(users)
    return grid, FlowerCourier(grid, 2, patience_s, check)


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
    with pytest.raises(DeployError, match="user 0 is connected twice"):
        courier({70: 0, 71: 0})[1].roll_call(0.5)


def test_a_node_that_is_gone_is_left_out_and_found_again_under_another_id() -> None:
    grid, over = courier({70: 0, 71: 1})
    over.roll_call(1.0)
    del grid.users[71]
    assert set(over.exchange(requests())) == {0}
    grid.users[99] = 1
    assert set(over.exchange(requests())) == {0, 1}


def test_a_node_does_not_take_over_a_user_whose_node_is_there() -> None:
    grid, over = courier({70: 0, 71: 1})
    over.roll_call(1.0)
    grid.users[100] = 1
    over.exchange(requests())
    over.exchange(requests())
    assert grid.asked[-2:] == [70, 71]
    # It waits until the first one is gone.
    del grid.users[71]
    assert set(over.exchange(requests())) == {0, 1}
    assert grid.asked[-2:] == [70, 100]


def test_late_hellos_are_checked_like_the_first_ones() -> None:
    def check(user: int, packet: Packet) -> None:
        if packet.header["value"] != 0.5 or user in refused:
            raise DeployError("it was prepared for something else")

    refused: set[int] = set()
    grid, over = courier({70: 0, 71: 1}, check=check)
    over.roll_call(1.0)
    del grid.users[71]
    refused.add(1)
    grid.users[99] = 1
    assert set(over.exchange(requests())) == {0}
    assert set(over.exchange(requests())) == {0}
    assert grid.asked.count(99) == 1, "a stranger is greeted once"
    with pytest.raises(DeployError, match="prepared for something else"):
        courier({70: 0, 71: 1}, check=check)[1].roll_call(1.0)


def test_a_registered_name_binds_a_node_to_its_user() -> None:
    grid, over = courier({70: 0, 71: 1})
    grid.names = {70: "user-000", 71: "user-001"}
    over.roll_call(1.0)
    grid.users[72], grid.names[72] = 1, "user-000"
    del grid.users[71]
    assert set(over.exchange(requests())) == {0}
    grid, over = courier({70: 0, 71: 1})
    grid.names = {70: "user-001"}
    with pytest.raises(DeployError, match="the key of user 1 says that it is user 0"):
        over.roll_call(1.0)


def test_a_device_that_is_restarted_during_the_roll_call_is_there_once() -> None:
    grid, over = courier({70: 0, 71: 0, 72: 1})
    looks = iter(range(100))

    def get_nodes() -> list[SimpleNamespace]:
        if next(looks) == 2:
            del grid.users[70]  # the SuperLink has noticed that the old one is gone
        return Grid.get_nodes(grid)

    grid.get_nodes = get_nodes
    assert set(over.roll_call(5.0)) == {0, 1}
    assert next(looks) > 2
    assert set(over.exchange(requests())) == {0, 1}
    assert grid.asked[-2:] == [71, 72]


def test_a_hello_that_was_lost_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, over = courier({70: 0, 71: 1})
    grid.silent.add(71)
    over._greet(strict=True)
    grid.silent.clear()  # it was restarted and has not heard the first one
    over._greet(strict=True)
    assert set(over.hellos) == {0}
    later = time.monotonic() + module.HELLO_S + 1.0
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    over._greet(strict=True)
    assert set(over.hellos) == {0, 1}
    assert module.HELLO_S <= 60.0


def test_a_reply_that_cannot_be_put_together_costs_its_user_alone() -> None:
    grid, over = courier({70: 0, 71: 1}, patience_s=1.0)
    over.roll_call(1.0)
    grid.broken.add(70)
    over.exchange(requests())  # whatever was pulled together with it may be lost, once
    answers = over.exchange(requests())
    assert answers[0].header["status"] == "garbage"
    assert answers[1].header["status"] == "ok"


def test_a_superlink_that_is_gone_is_not_taken_for_garbage() -> None:
    import httpx

    grid, over = courier({70: 0, 71: 1})
    over.roll_call(1.0)

    def gone(names: Iterable[str]) -> list[Message]:
        raise httpx.ConnectError("refused")

    grid.pull_messages = gone
    with pytest.raises(httpx.ConnectError):
        over.exchange(requests())


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


def array(data: bytes, kind: str = "float32", stype: str = "numpy.ndarray") -> Array:
    return Array(kind, (2,), stype, data)


def npy(header: str, data: bytes = b"") -> bytes:
    """An .npy file with this header."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


@pytest.mark.parametrize(
    "odd",
    [
        array(b""),
        array(b"PK\x03\x04nonsense"),
        array(b"\x80\x04K\x01."),  # a pickle
        array(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n")),
        array(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -2), }\n", bytes(8))),
        array(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }\n", bytes(8))),
        array(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", bytes(8))),
        array(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", bytes(8))),
        array(npy("(" * 900)),
        array(npy("{" * 60000)),
        array(bytes(8), stype="safetensors"),
    ],
)
def test_arrays_that_are_none_are_garbage(odd: Array) -> None:
    message = _message(7, Packet({"kind": "train"}), 5.0)
    content = RecordDict({"covey": ConfigRecord({"status": "ok"}), "upload": ArrayRecord({"weights": odd})})
    found = _packet(Message(content, reply_to=message))
    assert found.header["status"] == "garbage"
    assert not found.arrays
