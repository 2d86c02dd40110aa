"""The commands and snippets of Markdown pages: finding them, and running them in a folder that looks like a checkout.

Importing covey takes seconds, so one process does it (`serve`), and every `covey` or `python` of a page is a fork of
it. The stand-ins in the folder's .venv/bin pass arguments, folder, environment and outputs on and return the exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: `<!-- not run: reason -->`, nothing but empty lines, and a fenced block; either may be missing.
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^>]+?) -->\n\s*)?"
    r"^(?P<ticks>```+)(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=ticks)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
#: The commands, and what covey imports late because it is slow to load; matplotlib's list of fonts is read from a cache
#: in the home folder, which a page's folder does not have.
IMPORTED = (
    "covey.cli.main",
    "dp_accounting.gaussian_mechanism",
    "matplotlib.font_manager",
    "scipy.stats",
    "sklearn.datasets",
)
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


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and why it is not run, if it is not."""

    page: str
    line: int
    language: str
    code: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}, line {self.line}:\n{self.code}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("ticks")) + 1
        language = match["language"].strip() or ("sh" if match["code"].startswith("covey ") else "")
        found.append(Block(page.name, line, language, match["code"], match["reason"]))
    return found


@contextmanager
def covey_server() -> Iterator[str]:
    """The address of a process that has imported covey and runs commands as forks of itself."""
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder) / "covey")
        with subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE, cwd=ROOT) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == b"ready\n"
                yield address
            finally:
                server.terminate()


def make_checkout(folder: Path, address: str) -> None:
    """Fill a folder with what the commands of a page expect: make's files and a virtual environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "examples", "docs"):
        (folder / name).symlink_to(ROOT / name)
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (folder / "home").mkdir()
    (programs / "activate").touch()  # the programs are on the path already
    for program in ("covey", "python"):
        path = programs / program
        path.write_text(STAND_IN.format(python=sys.executable, address=address, program=program), encoding="utf-8")
        path.chmod(0o755)
    (folder / ".venv" / ".ready").touch()  # newer than what make compares it with: everything is set up


def run_block(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """What running a sh or python block in the folder gives."""
    programs = folder / ".venv" / "bin"
    words = ["bash", "-euo", "pipefail", "-c", block.code]
    if block.language == "python":
        words = [str(programs / "python"), "-c", block.code]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COVEY_")}
    environment |= {"HOME": str(folder / "home"), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)


def serve(address: str) -> None:
    """Import covey and everything it imports late, then answer each request with a fork, for ever."""
    for module in IMPORTED:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            line, _ = listener.accept()
            if os.fork() == 0:
                _answer(line)
            line.close()


def _answer(line: socket.socket) -> None:
    """Run one request in this process and end it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, descriptors, _, _ = socket.recv_fds(line, 8, 3)
    body = b""
    while len(body) < int.from_bytes(size, "big"):
        body += line.recv(1 << 20)
    request = json.loads(body)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    code = 0
    try:
        _run(request["program"], request["arguments"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    line.sendall(str(code).encode())
    os._exit(code)


def _run(program: str, arguments: list[str]) -> None:
    """`covey ARGUMENTS`, or `python -c CODE`, `python -m MODULE ...`, `python FILE ...`."""
    if program == "covey":
        from covey.cli.main import main

        sys.argv = ["covey", *arguments]
        main(arguments)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "snippet", "exec"), {"__name__": "__main__"})
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
