"""What several commands share: progress bars, polite interruption, free folders, learner settings."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from covey.errors import ResumeError, ScenarioError
from covey.learners.settings import LITERAL, LearnerSettings
from covey.scenario import Scenario, load_scenario


def progress_bar(console: Console) -> Progress:
    """A bar with count, what happens now, elapsed and remaining time; silent on a quiet console."""
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=False,
        disable=console.quiet,
    )


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a polite kill (SIGTERM) end the work like Ctrl-C, with everything saved."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def free_folder(name: str, checkpoint: str) -> Path:
    """runs/NAME, or runs/NAME-2, ... when taken: new work never touches old work."""
    base = Path("runs") / name.replace(os.sep, "_")
    folder, number = base, 1
    while (folder / checkpoint).exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def stored_scenario(folder: Path) -> Scenario:
    """The scenario of the work that a folder holds."""
    stored = folder / "scenario.toml"
    if not stored.is_file():
        raise ResumeError(f"'{folder}' has lost its scenario.toml and cannot be resumed; start again with --overwrite")
    return load_scenario(stored)


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def learner_settings(given: dict[str, Any], overrides: Sequence[str], *, literal: bool) -> LearnerSettings:
    """Settings from the command's own options, then `key=value` overrides; `literal` starts from the paper's loop."""
    values: dict[str, Any] = {**LITERAL} if literal else {}
    values |= {key: value for key, value in given.items() if value is not None}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ScenarioError(f"'--learner {override}' is not of the form key=value, for example --learner hidden=32")
        values[key.strip()] = text.strip()
    try:
        return LearnerSettings.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = ", ".join(LearnerSettings.model_fields)
            raise ScenarioError(f"there is no learner setting '{name}'; the settings are {known}") from None
        message = problem["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        where = f"the learner setting '{name}' is {problem['input']!r}, but " if name else ""
        raise ScenarioError(where + message[:1].lower() + message[1:]) from None
