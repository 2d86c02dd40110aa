"""Start, stop and resume runs and trainings, each in its own process.

Jobs outlive the dashboard: each has its own session, so that Ctrl-C does not reach it, and a dashboard
started later finds it by its lock.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from covey.dashboard.catalogue import Catalogue
from covey.dashboard.forms import Form, check_start, policy_file, scenario_of, settings_of
from covey.dashboard.runs_folder import OUTPUT, Folder
from covey.dashboard.scenario_keys import TOKEN_VARIABLE
from covey.errors import CoveyError, OutputError
from covey.files import why_not, write_atomically
from covey.scenario import dump_scenario


class BusyError(CoveyError):
    """The request conflicts with the state of the jobs: too many, already running, or already finished."""


class Jobs:
    """Starts, stops and resumes jobs in a folder; at most `limit` run concurrently."""

    def __init__(self, folder: Folder, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self.catalogue = Catalogue(folder, self._starting)

    def start(self, form: Form) -> str:
        """Start a new run or training; returns the name of its entry."""
        scenario = scenario_of(form, self._folder)
        check_start(form, scenario, self._folder)
        arguments, about = self._arguments(form)
        with self._lock:
            self._check_limit()
            name = self._folder.name_for(form.name, f"{scenario.name}-{about}-seed{form.seed}")
            path = self._folder.root / name
            try:
                path.mkdir()
            except OSError as error:
                raise OutputError(why_not(path, error)) from None
            write_atomically(path / "scenario.toml", dump_scenario(scenario).encode())
            command = "train" if form.kind == "training" else "run"
            self._begin(name, [command, f"{name}/scenario.toml", "--seed", str(form.seed), "--out", name, *arguments])
        return name

    def resume(self, name: str, rounds: int | None) -> None:
        """Resume an interrupted run or training; `rounds` also extends a finished run."""
        with self._lock:
            entry = self.catalogue.entry(name)
            if entry.status == "running":
                raise BusyError(f"'{name}' is still running; stop it first")
            if not entry.resumable:
                raise BusyError(f"'{name}' has no checkpoint to continue from; start a new one")
            if entry.kind == "training" and rounds is not None:
                raise BusyError("a training cannot be extended; leave the rounds out, or start a new one")
            if entry.status == "finished" and (rounds is None or rounds <= entry.done):
                raise BusyError(f"'{name}' is finished; give more than its {entry.done} rounds to extend it")
            self._check_limit()
            more = ["--rounds", str(rounds)] if rounds is not None else []
            self._begin(name, ["train" if entry.kind == "training" else "run", "--resume", "--out", name, *more])

    def stop(self, name: str) -> None:
        """Interrupt a job; it saves a checkpoint and can be resumed."""
        self._folder.place(name)
        worker = self.catalogue.worker(name)
        if worker is None:
            raise BusyError(f"'{name}' is not running")
        if worker == 0:
            raise BusyError(f"'{name}' runs on another machine; stop it there")
        try:
            os.kill(worker, _stop_signal(worker))
        except ProcessLookupError:
            raise BusyError(f"'{name}' has just ended") from None
        except PermissionError:
            raise BusyError(f"'{name}' belongs to another user of this machine; they can stop it") from None

    def running(self) -> list[str]:
        """Names of all running jobs in the folder, whoever started them."""
        return [entry.id for entry in self.catalogue.entries() if entry.status == "running"]

    def _check_limit(self) -> None:
        running = self.running()
        if len(running) >= self._limit:
            raise BusyError(
                f"{len(running)} of at most {self._limit} jobs are running; wait for one, stop one, or start the"
                " dashboard with more --jobs"
            )

    def _starting(self, name: str) -> int | None:
        """Process id of a job started by this dashboard that is still running."""
        process = self._started.get(name)
        return process.pid if process is not None and process.poll() is None else None

    def _arguments(self, form: Form) -> tuple[list[str], str]:
        """Further arguments of the command, and the policy or algorithm for the entry's name."""
        if form.kind == "training":
            settings = settings_of(form)
            arguments = [argument for text in form.learner for argument in ("--learner", text)]
            return [*arguments, "--algorithm", settings.algorithm, "--learning", form.learning], settings.algorithm
        policy, about = form.policy, form.policy
        if form.policy_of is not None:
            file = policy_file(form, self._folder)
            policy, about = str(file), file.parent.name
        rounds = ["--rounds", str(form.rounds)] if form.rounds is not None else []
        return ["--policy", policy, *rounds], about

    def _begin(self, name: str, arguments: list[str]) -> None:
        output: Path = self._folder.root / name / OUTPUT
        try:
            file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise OutputError(why_not(output, error)) from None
        try:
            self._started[name] = subprocess.Popen(
                [sys.executable, "-m", "covey", *arguments, "--quiet"],
                cwd=self._folder.root,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # The token is not passed on; wide output keeps error messages on one line.
                env={key: value for key, value in os.environ.items() if key != TOKEN_VARIABLE} | {"COLUMNS": "1000"},
            )
        except OSError as error:
            raise OutputError(f"the job cannot be started: {error.strerror or error}") from None
        finally:
            os.close(file)


def _stop_signal(process: int) -> signal.Signals:
    """The signal that interrupts a process: SIGINT, or SIGTERM if it ignores SIGINT (background jobs of scripts)."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return signal.SIGINT
    ignored = next((line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")), "0")
    return signal.SIGTERM if int(ignored, 16) >> (signal.SIGINT - 1) & 1 else signal.SIGINT
