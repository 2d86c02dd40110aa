"""Processes that tests start: they end with the block that started them, however the block ends.

Each has a session of its own, so that signals reach it and not the tests, and writes to files, because a pipe that
nobody reads fills up and stops whoever writes to it. Its children are known by an environment variable that they
inherit, also where they have left its session or lost their parent. No wait is without a limit, and every limit is
far above what a quiet machine needs: a busy one needs many times as long.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

#: Seconds to wait for what takes a second or a few on a quiet machine.
LIMIT_S = 300.0
#: The environment variable that names the families that a process belongs to.
FAMILY = "COVEY_TEST_FAMILY"


@dataclass(frozen=True)
class Ended:
    """Exit code, standard output and standard error of a process that has ended."""

    returncode: int
    stdout: str
    stderr: str


class Child:
    """A process that was started, what it has written so far, and how it ends."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, token: str) -> None:
        self._process, self._folder = process, folder
        self.family = token

    @property
    def pid(self) -> int:
        """Its number, which is that of its session and process group as well."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def stdout(self) -> str:
        """All that it has written to its standard output until now."""
        return (self._folder / "stdout").read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        """All that it has written to its standard error until now."""
        return (self._folder / "stderr").read_text(encoding="utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and to none of its children."""
        self._process.send_signal(number)

    def exit_code(self, limit_s: float = LIMIT_S) -> int:
        """Its exit code, once it has ended."""
        try:
            return self._process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended after {limit_s:g} s\n{self._tail()}") from None

    def wait_until(self, condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
        """Wait until something is true that this process brings about; it must not end before."""

        def reached() -> bool:
            running = self.running  # asked first: what it did last still counts
            if condition():
                return True
            assert running, f"it ended too early with code {self._process.poll()}\n{self._tail()}"
            return False

        until(reached, limit_s, self._tail)

    def line(self, number: int = 0, limit_s: float = LIMIT_S) -> str:
        """A line of its standard output, counted from 0, without its end; waits until it is there."""
        self.wait_until(lambda: self.stdout.count("\n") > number, limit_s)
        return self.stdout.split("\n")[number]

    def _tail(self) -> str:
        return f"stdout: {self.stdout[-2000:]}\nstderr: {self.stderr[-4000:]}"


def until(condition: Callable[[], object], limit_s: float = LIMIT_S, told: Callable[[], object] = lambda: "") -> None:
    """Wait until a condition is true; where it never is, the error says what `told` gives."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not come true in {limit_s:g} s {told()}"
        time.sleep(0.02)


@contextmanager
def started(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    alone: bool = False,
) -> Iterator[Child]:
    """A process with this environment (default: ours); it and all that it has started are gone after the block.

    With `alone`, what it has started stays: for a command that starts servers, within a `family`.
    """
    token = secrets.token_hex(8)
    given = {**(os.environ if env is None else env), FAMILY: f"{os.environ.get(FAMILY, '')}:{token}"}
    with tempfile.TemporaryDirectory(prefix="covey-test-") as name:
        folder = Path(name)
        with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            process = subprocess.Popen(
                command, cwd=cwd, env=given, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        try:
            yield Child(process, folder, token)
        finally:
            if not alone:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait(timeout=LIMIT_S)
            if not alone:
                end_family(token)


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> Ended:
    """What a process wrote, and its exit code; an error where it has not ended in time."""
    with started(command, cwd=cwd, env=env) as child:
        code = child.exit_code(limit_s)
        return Ended(code, child.stdout, child.stderr)


@contextmanager
def family() -> Iterator[str]:
    """The name of a family; all processes that anything in the block starts, however deep, are gone after it."""
    before, token = os.environ.get(FAMILY), secrets.token_hex(8)
    os.environ[FAMILY] = f"{before or ''}:{token}"
    try:
        yield token
    finally:
        if before is None:
            del os.environ[FAMILY]
        else:
            os.environ[FAMILY] = before
        end_family(token)


def members(token: str) -> list[int]:
    """The processes of a family that have not ended; none where there is no /proc to find them in."""
    wanted, found = f":{token}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            variables = (folder / "environ").read_bytes().split(b"\0")
            if any(one.startswith(f"{FAMILY}=".encode()) and wanted in one for one in variables):
                found.append(int(folder.name))
    return [process for process in found if process != os.getpid()]


def end_family(token: str) -> None:
    """Kill all processes of a family, again and again until there are none: they may have started others meanwhile."""

    def gone() -> bool:
        left = members(token)
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return not left

    until(gone)


def alive(process: int) -> bool:
    """Whether a process is there and not merely waiting to be collected by its parent."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def group_alive(group: int) -> bool:
    """Whether a process group has a member that is alive."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] not in "ZX":
                return True
    return False
