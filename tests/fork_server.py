"""`python fork_server.py ADDRESS`: runs commands as forks of itself, for tests/forks.py.

It imports covey, plays a round and trains for an epoch, then answers each request with a fork, for ever. Nothing of
the tests is imported here: a worker process that a command starts imports this file again.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path

#: What covey imports late because it is slow to load; matplotlib's list of fonts is read from a cache in the home
#: folder, which a page's folder does not have.
IMPORTED = ("dp_accounting.gaussian_mechanism", "matplotlib.font_manager", "scipy.stats", "sklearn.datasets")
#: Played before the first fork, so that compiled code is loaded and what is imported at its first use has been.
PLAYED = (
    ["run", "quick", "--rounds", "1", "--quiet", "--out", "run"],
    ["train", "quick", "--epochs", "1", "--learner", "networks=2", "--learner", "updates=1",
     "--learner", "validation=2", "--quiet", "--out", "training"],
)  # fmt: skip


def prepare() -> None:
    """Load whatever commands would load, each for itself."""
    from covey.cli.main import COMMANDS, load, main
    from covey.errors import CoveyError

    for name in COMMANDS:
        with contextlib.suppress(CoveyError, ImportError):  # an extra that is not installed
            load(name)
    for module in IMPORTED:
        importlib.import_module(module)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for arguments in PLAYED:
            try:
                main(list(arguments))
            except SystemExit as end:
                if end.code:
                    raise
        os.chdir(before)


def serve(address: str) -> None:
    """Answer each request with a fork, for ever."""
    prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            line, _ = listener.accept()
            if os.fork() == 0:
                answer(line)
            line.close()


def answer(line: socket.socket) -> None:
    """Run one request in this process and end it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, descriptors, _, _ = socket.recv_fds(line, 8, 3)
    body = b""
    while len(body) < int.from_bytes(size, "big"):
        more = line.recv(1 << 20)
        if not more:  # who asked has gone
            os._exit(1)
        body += more
    request = json.loads(body)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    code = 0
    try:
        run(request["program"], request["arguments"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    line.sendall(str(code).encode())
    os._exit(code)


def run(program: str, arguments: list[str]) -> None:
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
