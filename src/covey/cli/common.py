"""What several commands share: options, progress bars, polite interruption, free folders."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from covey.errors import ResumeError
from covey.scenario import PRESETS, Scenario, load_stored_scenario

#: Arguments and options that mean the same in several commands.
ScenarioName = Annotated[str, typer.Argument(help=f"A preset ({', '.join(PRESETS)}) or a TOML file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key, e.g. network.users=20. Repeatable."),
]
CalibrationFile = Annotated[Path | None, typer.Option(help="Calibration file; the one of the scenario when not given.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
#: Options of commands that compute many pieces of work.
Processes = Annotated[int | None, typer.Option(min=1, help="Experiments computed at once; all cores by default.")]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Compute on a Ray cluster: HOST:PORT, auto (the one this machine is in) or local (start one here).",
    ),
]


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
    """Let a polite kill (SIGTERM) end the work like Ctrl-C, with everything saved, and lose neither.

    An interrupt that arrives while a finalizer runs is swallowed by Python; it is sent once more, and not shown.
    """
    again: list[threading.Timer] = []

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    def not_lost(swallowed: sys.UnraisableHookArgs) -> None:
        if not issubclass(swallowed.exc_type, KeyboardInterrupt):
            hook(swallowed)
            return
        again.append(threading.Timer(0.01, _thread.interrupt_main))
        again[-1].daemon = True
        again[-1].start()

    before, hook = signal.signal(signal.SIGTERM, stop), sys.unraisablehook
    sys.unraisablehook = not_lost
    try:
        yield
    finally:
        for timer in again:
            timer.cancel()
        sys.unraisablehook = hook
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
    return load_stored_scenario(stored)


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
