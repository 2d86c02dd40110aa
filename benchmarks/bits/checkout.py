"""A content-addressed copy of a checkout's source, and the processes that run its commands."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import IO, Any

from bits.cases import Case, Step

PLAYER = Path(__file__).with_name("play.py")
#: Environment variables that affect the cache of compiled code or the results.
LEFT_OUT = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "NUMBA_CACHE_DIR", "COVEY_DATA", "COVEY_DEBUG")
#: Grace period in seconds between SIGTERM and SIGKILL.
GRACE_S = 30.0


class StepError(Exception):
    """A step ended with an unexpected exit code; the message says which."""


class Checkout:
    """A snapshot of `folder`/src in `out`, unaffected by edits while commands run.

    Compiled code is cached in the snapshot, so a kernel is never taken from another version of the source.
    """

    def __init__(self, folder: Path, out: Path, python: str) -> None:
        source = folder / "src"
        if not (source / "covey" / "__init__.py").is_file():
            raise SystemExit(f"'{folder}' is no checkout of covey: it has no src/covey")
        self.folder, self.python, self._out = folder, python, out
        files = sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        digest = hashlib.sha256()
        for path in files:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(source)}\0{len(content)}\0".encode() + content)
        self.key = digest.hexdigest()[:16]
        self.source = out / "trees" / self.key / "src"
        if not self.source.is_dir():
            unfinished = out / "trees" / f"{self.key}-{os.getpid()}"
            shutil.copytree(source, unfinished / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            try:
                unfinished.rename(self.source.parent)
            except OSError:  # lost a race with another process
                shutil.rmtree(unfinished)
        self.commit = _git_describe(folder)
        self._player: Player | None = None
        self._lock = threading.Lock()

    def environment(self) -> dict[str, str]:
        """Environment variables of every process of this checkout."""
        kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        return kept | {"PYTHONPATH": str(self.source), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

    def play(self, case: Case, workers: int, folder: Path, data: Path | None) -> None:
        """Run a case's steps in `folder`; raises `StepError` on an unexpected exit code."""
        with self._lock:
            if self._player is None:
                self._player = Player(self)
        given = {"COVEY_DATA": str(prepare_data(folder, data))}
        for number, step in enumerate(case.steps):
            log = folder / f"step{number}.log"
            code = self._player.run(step, workers, folder, log, given)
            check(step, code, log)

    def close(self) -> None:
        """Stop all running processes."""
        if self._player is not None:
            self._player.close()


class Player:
    """A `play.py` process of one checkout; thread-safe."""

    def __init__(self, checkout: Checkout) -> None:
        self._process = subprocess.Popen(
            [checkout.python, str(PLAYER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=checkout.environment(),
            cwd=checkout.source,
            start_new_session=True,  # on Ctrl-C its standard input is closed instead
        )
        self._numbers, self._lock = count(), threading.Lock()
        self._waiting: dict[int, tuple[threading.Event, list[int | None]]] = {}
        first = self._output.readline()
        if not first or not Path(json.loads(first)["covey"]).is_relative_to(checkout.source):
            self.close()
            raise StepError(f"Python does not import covey from '{checkout.folder}'")
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def run(self, step: Step, workers: int, folder: Path, log: Path, environment: dict[str, str]) -> int | None:
        """The exit code of a step, negative for a signal; None after a timeout."""
        number, ended = next(self._numbers), threading.Event()
        job: dict[str, Any] = {"id": number, "folder": str(folder), "log": str(log), "environment": environment}
        job |= {"limit_s": step.limit_s, "die": step.die}
        if step.script:
            job["script"] = step.script
        else:
            job["command"] = [part.replace("{workers}", str(workers)) for part in step.command]
        answer: list[int | None] = []
        with self._lock:
            if self._process.poll() is not None:
                raise StepError("the process that starts commands has ended")
            self._waiting[number] = ended, answer
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        ended.wait()
        if not answer:
            raise StepError("the process that starts commands has ended")
        return answer[0]

    def close(self) -> None:
        """Stop the process, which kills its children."""
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        for line in self._output:
            said = json.loads(line)
            ended, answer = self._waiting.pop(said["id"])
            answer.append(said["code"])
            ended.set()
        with self._lock:
            for ended, _ in self._waiting.values():
                ended.set()


def check(step: Step, code: int | None, log: Path) -> None:
    """Raise `StepError` unless the step ended with the expected exit code."""
    if code is None:
        raise StepError(f"step {log.stem} took more than {step.limit_s:.0f} s")
    if code != step.code:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
        raise StepError(f"{log.stem} ended with {code} instead of {step.code}: {said[:300]}")


def prepare_data(folder: Path, data: Path | None) -> Path:
    """A case's own data folder with links to the data sets, so that its cache is not shared with other cases."""
    own = folder / "data"
    own.mkdir()
    for path in data.iterdir() if data is not None else ():
        if path.name.startswith(("cifar-10", "femnist", "fashion")):
            (own / path.name).symlink_to(path.resolve())
    return own


def result_key(case: Case, workers: int, data: Path | None, versions: str) -> str:
    """Cache key of a result within a checkout: steps, workers, data, Python and packages."""
    found = sorted(data.rglob("*")) if data is not None and case.needs else []
    listing = [(str(path.relative_to(data)), path.stat().st_size) for path in found if data and path.is_file()]
    steps = [asdict(step) | {"limit_s": None} for step in case.steps]
    values = [steps, workers, listing, versions, PLAYER.read_text(encoding="utf-8")]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def run_alone(checkout: Checkout, python: str, step: Step, folder: Path, log: Path) -> int | None:
    """The exit code of a command in its own process group; terminated, then killed, after a timeout."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            [python, "-m", "covey", *step.command],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=folder, env=checkout.environment(),
            start_new_session=True,
        )  # fmt: skip
    code: int | None = None
    try:
        code = process.wait(step.limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return code


def _git_describe(folder: Path) -> str:
    asked = subprocess.run(
        ["git", "-C", str(folder), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "no git"
