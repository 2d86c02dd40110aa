"""Submits a deployed run to a SuperLink and follows it to its end."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from covey.agents.policy import LearnedPolicy
from covey.association import Policy
from covey.deploy.processes import Started, last_line, submit_command, write_app
from covey.deploy.server import (
    GROUPS,
    INCIDENTS,
    OUTCOME,
    POLICY,
    PROGRESS,
    START,
    TRACE,
    Settings,
    check_deployable,
)
from covey.errors import EXIT_CODES, CoveyError, DataError, DeployError, ResumeError
from covey.files import write_atomically
from covey.privacy import JOURNAL
from covey.scenario import Scenario, dump_scenario
from covey.simulation.checkpoint import CHECKPOINT, prepare_folder

#: Timeout from submission to the first progress report.
_FIRST_SIGN_S = 300.0


def new_run(
    scenario: Scenario,
    folder: Path,
    decides: str | Policy = "greedy",
    *,
    overwrite: bool = False,
    groups: Path | None = None,
    trace: Path | None = None,
    **settings: Any,
) -> Settings:
    """Write the settings of a new run to `folder`; `settings` are the other fields of `Settings`, except `run`.

    A learned policy, true groups and a trace are copied there too; `settings["policy"]` is the policy's name.
    """
    check_deployable(scenario)
    given = {name: _content(path) for name, path in ((GROUPS, groups), (TRACE, trace)) if path is not None}
    prepare_folder(folder, overwrite=overwrite)
    for old in (CHECKPOINT, PROGRESS, OUTCOME, JOURNAL, POLICY, START, INCIDENTS, GROUPS, TRACE):
        (folder / old).unlink(missing_ok=True)
    chosen = Settings(
        run=secrets.token_hex(8),
        groups=GROUPS if GROUPS in given else "",
        trace=TRACE if TRACE in given else "",
        modules=str(Path.cwd()),
        **settings,
    )
    write_atomically(folder / "scenario.toml", dump_scenario(scenario).encode())
    for name, content in given.items():
        write_atomically(folder / name, content)
    chosen.write(folder)
    if isinstance(decides, LearnedPolicy):
        decides.save(folder / POLICY)
    return chosen


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"'{path}' cannot be read ({error.strerror})") from None


def follow(started: Started, folder: Path, on_progress: Callable[[dict[str, Any]], None]) -> None:
    """Submit the run of `folder`, report its progress, and return when it is done; raises if it fails."""
    busy = _read(folder / PROGRESS)
    if busy and not (folder / OUTCOME).exists() and _alive(int(busy.get("pid", 0))):
        raise ResumeError(f"'{folder}' is being played by process {busy['pid']}; wait for it, or end it first")
    token = _new_token(folder)
    (folder / PROGRESS).unlink(missing_ok=True)
    (folder / OUTCOME).unlink(missing_ok=True)
    try:
        _watch(started, folder, token, on_progress)
    except KeyboardInterrupt:
        # The server app is a child of the SuperLink, not of this process, and may start only later: the new token
        # then makes it exit.
        _new_token(folder)
        process = int(_read(folder / PROGRESS).get("pid", 0))
        if process and not (folder / OUTCOME).exists() and _alive(process):
            os.kill(process, signal.SIGTERM)
        raise


def _new_token(folder: Path) -> str:
    """Invalidate all earlier submissions of the run; returns the token of the next one."""
    token = secrets.token_hex(8)
    replace(Settings.read(folder), token=token).write(folder)
    return token


def _watch(started: Started, folder: Path, token: str, on_progress: Callable[[dict[str, Any]], None]) -> None:
    name = "flwr-run"
    app = write_app(folder / ".app")
    submitted = started.start(name, submit_command(app, folder, token))
    shown, began = "", time.monotonic()
    while True:
        progress, outcome = _read(folder / PROGRESS), _read(folder / OUTCOME)
        if progress and json.dumps(progress) != shown:
            shown = json.dumps(progress)
            on_progress(progress)
            shutil.rmtree(app, ignore_errors=True)  # Flower has uploaded it
        if outcome:
            if outcome.get("status") == "done":
                return
            raise _error(outcome)
        if progress and not _alive(int(progress["pid"])) and not (folder / OUTCOME).exists():
            raise DeployError(
                f"the server app exited during the run; resume it with: covey deploy run --resume --out {folder}"
            )
        if not progress and submitted.poll() not in (None, 0):
            raise DeployError(f"the run could not be started: {last_line(started.log(name))}; see {started.log(name)}")
        if not progress and time.monotonic() - began > _FIRST_SIGN_S:
            raise DeployError(f"the run has not reported progress after {_FIRST_SIGN_S:g} s; see {started.log(name)}")
        time.sleep(0.2)


def _error(outcome: dict[str, Any]) -> CoveyError:
    """The error that ended the run, with its own exit code."""
    error = DeployError(str(outcome.get("error", "the run failed")))
    code = outcome.get("exit_code", 1)
    error.exit_code = code if code in EXIT_CODES else 1
    return error


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}


def _alive(process: int) -> bool:
    """Whether a local process is running; zombies are not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return state not in ("Z", "X")
    except (OSError, IndexError):
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not Path("/proc/self").exists()
