"""Processes that are started, waited for and ended, with stand-ins for Flower's."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from tests.processes import LIMIT_S

from covey.deploy.processes import Started, reachable, register_node
from covey.errors import DeployError, OutputError


def with_flower(folder: Path, script: str) -> Started:
    """Processes that find this script under the name `flwr`."""
    program = folder / "bin" / "flwr"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder / "calls"}\n{script}\n', encoding="utf-8")
    program.chmod(0o755)
    return Started(folder / "logs", os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"})


def test_a_server_is_waited_for_where_it_listens(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(3600)"]
    with socket.socket() as listener, Started(tmp_path, os.environ) as started:
        try:
            listener.bind(("127.0.0.2", 0))
        except OSError:
            pytest.skip("this machine has one loopback address only")
        listener.listen()
        started.start("there", sleep)
        port = listener.getsockname()[1]
        started.wait_for_port("there", port, LIMIT_S, "127.0.0.2")
        with pytest.raises(DeployError, match=r"does not listen on port \d+ of 127\.0\.0\.1"):
            started.wait_for_port("there", port, 0.5, "0.0.0.0")
    assert [reachable(host) for host in ("0.0.0.0", "::", "10.1.2.3")] == ["127.0.0.1", "::1", "10.1.2.3"]


def test_a_key_that_is_known_already_stays_admitted(tmp_path: Path) -> None:
    known = "echo 'Error: [code: 23] Public key already in use.' >&2; exit 1"
    with with_flower(tmp_path, known) as started:
        register_node(started, tmp_path / "user-007.pub", LIMIT_S)
        register_node(started, tmp_path / "some.pub", LIMIT_S)
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    # A key is bound to the user of its file.
    assert calls[0] == f"supernode register {tmp_path / 'user-007.pub'} covey --name user-007"
    assert calls[1] == f"supernode register {tmp_path / 'some.pub'} covey"


def test_a_key_that_cannot_be_registered_gets_a_sentence(tmp_path: Path) -> None:
    with with_flower(tmp_path, "echo 'Error: not a key'; exit 1") as started:
        # What an earlier start has left in the log does not count.
        started.log("register-user-000").write_text("Public key already in use.\n", encoding="utf-8")
        with pytest.raises(DeployError, match="could not be registered: Error: not a key"):
            register_node(started, tmp_path / "user-000.pub", LIMIT_S)


def test_a_registration_that_never_ends_gets_a_sentence(tmp_path: Path) -> None:
    with with_flower(tmp_path, "exec sleep 3600") as started:
        with pytest.raises(DeployError, match="has not ended after"):
            register_node(started, tmp_path / "user-000.pub", 0.5)
        assert not started.processes


def test_logs_that_cannot_be_written_get_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OutputError, match="--home"):
        Started(tmp_path / "file" / "logs", {})
