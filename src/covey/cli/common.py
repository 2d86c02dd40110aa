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
from types import FrameType
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
    """Let Ctrl-C (SIGINT) and a polite kill (SIGTERM) end the work with everything saved, and lose neither.

    Where Python or a compiled library would swallow or mishandle an exception that comes out of nowhere, the signal
    is put off for a moment and sent again: inside a finalizer, and inside numba, whose dispatchers call Python from C
    and end the process, or return a result with the exception pending, when that call is interrupted.
    """
    again: list[threading.Timer] = []
    hook = sys.unraisablehook

    def put_off(number: int) -> None:
        again[:] = [timer for timer in again if timer.is_alive()]
        again.append(threading.Timer(0.01, _thread.interrupt_main, (number,)))
        again[-1].daemon = True
        again[-1].start()

    def stop(number: int, frame: FrameType | None) -> None:
        if _may_not_raise(frame):
            put_off(number)
            return
        raise KeyboardInterrupt

    def not_lost(swallowed: sys.UnraisableHookArgs) -> None:
        if issubclass(swallowed.exc_type, KeyboardInterrupt):
            put_off(signal.SIGINT if signal.SIGINT in before else signal.SIGTERM)
        else:
            hook(swallowed)

    before: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as of a command in the background of a shell script
            before[number] = signal.signal(number, stop)
    sys.unraisablehook = not_lost
    try:
        yield
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
        sys.unraisablehook = hook
        for timer in again:
            timer.cancel()


def _may_not_raise(frame: FrameType | None) -> bool:
    """Whether a finalizer or code of numba is among the running calls."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        if str(frame.f_globals.get("__name__")).partition(".")[0] in ("numba", "llvmlite"):
            return True
        frame = frame.f_back
    return False


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
