"""Commands as forks of a process that has imported covey, played a round and trained for an epoch.

Starting `covey` takes seconds, nearly all of them for imports and for compiled code that is read from disk. A fork
has both already; everything else is that of a process of its own: arguments, folder, environment, outputs, exit code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.processes import LIMIT_S, Child, Ended, members, started

ROOT = Path(__file__).parents[1]
STAND_IN = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    request = {{"program": {program!r}, "arguments": sys.argv[1:]}}
    body = json.dumps(request | {{"folder": os.getcwd(), "environment": dict(os.environ)}}).encode()
    socket.send_fds(line, [len(body).to_bytes(8, "big")], [0, 1, 2])
    line.sendall(body)
    sys.exit(int(line.recv(16) or 70))
"""


class Forks:
    """Runs commands as forks of a process that is ready for them."""

    def __init__(self, address: str, server: Child) -> None:
        self._address, self._server = address, server

    def stand_in(self, program: str, path: Path) -> None:
        """Write an executable file that passes its arguments on; `program` is covey or python."""
        text = STAND_IN.format(python=sys.executable, address=self._address, program=program)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def covey(
        self, *arguments: object, cwd: Path, env: Mapping[str, str] | None = None, limit_s: float = LIMIT_S
    ) -> Ended:
        """What `covey ARGUMENTS` gives in a folder, with this environment (default: ours)."""
        words = [str(argument) for argument in arguments]
        request = {"program": "covey", "arguments": words, "folder": str(cwd)}
        body = json.dumps(request | {"environment": dict(os.environ if env is None else env)}).encode()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as nothing:
            code = None
            with suppress(TimeoutError), socket.socket(socket.AF_UNIX) as line:
                line.settimeout(limit_s)
                line.connect(self._address)
                socket.send_fds(line, [len(body).to_bytes(8, "big")], [nothing.fileno(), out.fileno(), err.fileno()])
                line.sendall(body)
                code = int(line.recv(16) or 70)
            said = []
            for file in (out, err):
                file.seek(0)
                said.append(file.read().decode(errors="replace"))
        if code is None:
            self.end_all()
            raise AssertionError(f"covey {' '.join(words)} has not ended after {limit_s:g} s\n{said[1][-4000:]}")
        return Ended(code, *said)

    def end_all(self) -> None:
        """End every command that goes on."""
        for process in set(members(self._server.family)) - {self._server.pid}:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@contextmanager
def covey_forks() -> Iterator[Forks]:
    """The process that commands are forks of; it and all of them are gone after the block."""
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder) / "covey")
        program = Path(__file__).with_name("fork_server.py")
        with started([sys.executable, program, address], cwd=ROOT) as server:
            assert server.line() == "ready"
            yield Forks(address, server)
