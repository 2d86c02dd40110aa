"""Fork server for commands of the importable covey: each runs in a process forked after a small warm-up run.

Imports and loading of compiled code take longer than most commands; a forked process inherits them. Reports and
plots, which take longer than short runs and are not compared, are skipped. Reads one job per line
of standard input (JSON: id, folder, log, environment, limit_s, and `command` for covey or `script` to execute; `die`
is [signal, n]: the process gets the signal when it replaces its checkpoint for the n-th time, before it does), and
answers with a line {id, code} when it has ended; code is null after a timeout. When standard input is closed,
all running jobs are killed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

#: Functions of `covey.report` whose output is not compared.
REPORTS = ("write_report", "write_training_report")
#: Warm-up run: imports dependencies and loads compiled code.
FIRST = ("run", "quick", "--rounds", "2", "--quiet", "--workers", "1", "--out")
CHECKPOINT = "checkpoint.safetensors"


def serve(answers: int) -> dict[str, Any]:
    """Fork a process per job. Returns in each child, with its job; the parent never returns."""
    running: dict[int, tuple[dict[str, Any], float]] = {}
    waiting, reading = b"", True
    while reading or running:
        if reading and select.select([0], [], [], 0.02)[0]:
            received = os.read(0, 1 << 16)
            reading = bool(received)
            *lines, waiting = (waiting + received).split(b"\n")
            for line in lines:
                job = json.loads(line)
                process = os.fork()
                if process == 0:
                    return dict(job)
                running[process] = job, time.monotonic() + job["limit_s"]
        for process, (job, deadline) in list(running.items()):
            late = not reading or time.monotonic() > deadline
            if late:
                kill_group(process)
            found, status = os.waitpid(process, 0 if late else os.WNOHANG)
            if found:
                kill_group(process)  # workers of a killed process
                del running[process]
                code = None if late else os.waitstatus_to_exitcode(status)
                os.write(answers, json.dumps({"id": job["id"], "code": code}).encode() + b"\n")
    os._exit(0)


def kill_group(process: int) -> None:
    """Kill a job's process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it may not be a group leader yet
        os.kill(process, signal.SIGKILL)


def enter(job: dict[str, Any]) -> None:
    """Set up this process for a job: process group, folder, environment and log."""
    os.setsid()
    os.chdir(job["folder"])
    os.environ.update(job["environment"])
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    if job.get("die"):
        die_at_checkpoint(*job["die"])


def die_at_checkpoint(how: int, turn: int) -> None:
    """Send this process a signal just before it replaces its checkpoint for the `turn`-th time."""
    seen = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event == "os.rename" and Path(os.fsdecode(arguments[1])).name == CHECKPOINT:
            seen += 1
            if seen == turn:
                os.kill(os.getpid(), how)

    sys.addaudithook(watch)


def run(job: dict[str, Any]) -> None:
    """Run the job as a main program."""
    if "script" in job:
        exec(compile(job["script"], "<script>", "exec"), {"__name__": "__script__"})
        return
    sys.argv = ["covey", *job["command"]]
    importlib.import_module("covey.cli.main").main(job["command"])


def warm_up() -> None:
    """Warm up this process; errors are ignored here, because the commands will report them."""
    importlib.import_module("matplotlib.figure").Figure.savefig = lambda *positional, **named: None
    report = importlib.import_module("covey.report")
    for name in REPORTS:
        if hasattr(report, name):
            setattr(report, name, lambda *positional, **named: None)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit):
        importlib.import_module("covey.cli.main").main([*FIRST, f"{folder}/run"])


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    answering = os.dup(1)
    os.dup2(2, 1)
    warm_up()
    os.write(answering, json.dumps({"covey": importlib.import_module("covey").__file__}).encode() + b"\n")
    own = serve(answering)
    os.close(answering)
    enter(own)
    run(own)
