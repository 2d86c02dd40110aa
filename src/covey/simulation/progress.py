"""What others may watch of work that goes on: an append-only file of its rows, locked while a process writes it.

Lines of `progress.jsonl` are JSON objects. `started` says what the work is and how far it had come, `row` holds the
numbers of one finished round or epoch, `ended` says how it ended. No result is read from this file.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from covey import run_files
from covey.errors import CoveyError, OutputError
from covey.files import plain, why_not

try:
    import fcntl
except ImportError:  # no POSIX locks on this system: nobody can tell who is working
    fcntl = None  # type: ignore[assignment]

PROGRESS = run_files.PROGRESS

#: How work can end.
Ending = Literal["finished", "interrupted", "failed"]

#: struct flock of this system, and where its kind and process stand.
_FLOCK, _KIND, _PROCESS = ("qqihh", 3, 2) if sys.platform == "darwin" else ("hhqqi4x", 0, 4)
#: Seconds for which a taken lock is tried again.
_PATIENCE_S = 1.0


class Progress:
    """Writes FOLDER/progress.jsonl and holds its lock from `claim` or `start` to the end of the `with` block.

    Nothing is written before `start`. An exception that leaves the block is noted as the end of the work.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROGRESS
        self._file: int | None = None
        self._started = False
        self._ending: Ending = "finished"
        self._message = ""
        self._count = {"done": 0, "total": 0}

    def claim(self) -> None:
        """Take the lock; `OutputError` when another process works in the folder."""
        try:
            # Not truncated here: the lines may belong to somebody who is working.
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise OutputError(why_not(self._path, error)) from None
        self._lock()

    def start(self, about: dict[str, Any], *, done: int, total: int, resume: bool) -> None:
        """Note what begins, under the lock.

        about: what identifies the work, for lists; done, total: rounds or epochs; resume: keep the lines so far.
        """
        if self._file is None:
            self.claim()
        assert self._file is not None
        end = os.lseek(self._file, 0, os.SEEK_END)
        if not resume:
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
        elif end and os.pread(self._file, 1, end - 1) != b"\n":
            self._append(b"\n")  # a crash cut the last line
        self._count = {"done": done, "total": total}
        self._started = True
        self._write({"event": "started", **about, "process": os.getpid()})

    def row(self, row: dict[str, Any], done: int) -> None:
        """Note the numbers of a finished round or epoch, the `done`-th."""
        self._count["done"] = done
        self._write({"event": "row", "row": row})

    def interrupted(self) -> None:
        """Note that the work stopped before its end and can be continued."""
        self._ending = "interrupted"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is None:
            return
        if isinstance(error, KeyboardInterrupt):
            self._ending = "interrupted"
        elif error is not None:
            self._ending = "failed"
            self._message = str(error) if isinstance(error, CoveyError) else f"{type(error).__name__}: {error}"
        try:
            if self._started:
                self._write({"event": "ended", "status": self._ending, "message": self._message})
        except OutputError:
            if error is None:
                raise
        finally:
            os.close(self._file)  # which also gives the lock back
            self._file = None

    def _lock(self) -> None:
        if fcntl is None or self._file is None:
            return
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                # Not inherited by worker processes, and given back by the system however this process ends.
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > deadline:
                    os.close(self._file)
                    self._file = None
                    raise OutputError(
                        f"another covey process is working in '{self._path.parent}'; wait for it to end, stop it, or"
                        " choose another folder with --out"
                    ) from None
                time.sleep(0.05)

    def _write(self, event: dict[str, Any]) -> None:
        line = json.dumps(plain(event | self._count | {"time": round(time.time(), 3)}), allow_nan=False)
        self._append(line.encode() + b"\n")

    def _append(self, content: bytes) -> None:
        if self._file is None:
            raise ValueError("the work has not been started; call start first")
        try:
            os.write(self._file, content)
        except OSError as error:
            raise OutputError(why_not(self._path, error)) from None


def worker_of(folder: Path) -> int | None:
    """The process that works in a folder: its number, 0 when it runs on another machine, None when there is none."""
    if fcntl is None:
        return None
    try:
        file = os.open(folder / PROGRESS, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        # Asked, not tried: taking the lock for a moment could be in the way of the process that wants to work.
        question = [0] * 5
        question[_KIND] = fcntl.F_WRLCK
        answer = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_FLOCK, *question)))
    except OSError:
        return None
    finally:
        os.close(file)
    return None if answer[_KIND] == fcntl.F_UNLCK else max(int(answer[_PROCESS]), 0)
