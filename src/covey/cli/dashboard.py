"""`covey dashboard`: a web page for a folder of runs, on this machine."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from covey.cli.common import cores, interruptible
from covey.errors import ScenarioError
from covey.extras import require_extra

_DEFAULT = Path("runs")


def dashboard(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder of runs and trainings; `runs` is made when it is missing.")
    ] = _DEFAULT,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8421,
    host: Annotated[
        str, typer.Option(help="Address to listen at; others than this machine's loopback need a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="COVEY_TOKEN",
            help="What clients must know, at least 16 characters; made and printed when --host needs one.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=0, help="Runs and trainings that may go on at once; the cores when not given.")
    ] = None,
    open_: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open a browser; by default where there is a screen.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the address and errors.")] = False,
) -> int:
    """Serve a web page that lists, compares, follows, starts, stops and resumes runs and trainings.

    Everything stays on this machine: the page comes with covey and loads nothing from elsewhere. Runs that
    are started from the page are processes of their own. Ctrl-C ends the dashboard and leaves them running;
    a dashboard that is started later finds them again and can stop them.

    Examples:

      covey dashboard

      covey dashboard results --port 0 --no-open

      covey dashboard --host 0.0.0.0
    """
    require_extra("dashboard", "covey dashboard")
    # Imported here: other commands do not need a web server.
    from covey.dashboard.runs_folder import MARKS
    from covey.dashboard.scenario_keys import Settings
    from covey.dashboard.serve import listen, reaches_others, serve

    root = _folder(folder, MARKS)
    if token is None and reaches_others(host):
        token = secrets.token_urlsafe(24)
    settings = Settings(root, host=host, token=token, jobs=cores() if jobs is None else jobs)
    console, notes = Console(soft_wrap=True), Console(stderr=True, quiet=quiet, soft_wrap=True)
    listening = listen(host, port)
    if reaches_others(host):
        notes.print(
            "[yellow]Other machines can reach this dashboard, and nothing is encrypted.[/] Use it in a network you"
            " trust, or keep it on 127.0.0.1 behind an SSH tunnel."
        )

    def ready(address: str) -> None:
        console.print(f"Dashboard of [bold]{escape(str(folder))}[/]: {escape(address)}", highlight=False)
        notes.print("Ctrl-C ends it and leaves started runs running.")
        if open_ or (open_ is None and _has_screen()):
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    with interruptible():
        serve(settings, listening, ready)
    return 0


def _folder(folder: Path, marks: frozenset[str]) -> Path:
    """The folder to serve, made when it is the default one and missing."""
    if folder == _DEFAULT:
        folder.mkdir(exist_ok=True)
    if not folder.is_dir():
        raise ScenarioError(f"there is no folder '{folder}'; make it, or give the folder that holds your runs")
    if any((folder / mark).is_file() for mark in marks):
        raise ScenarioError(
            f"'{folder}' is a run or training itself; give the folder that holds it, '{folder.resolve().parent}'"
        )
    return folder


def _has_screen() -> bool:
    """Whether a browser could be shown to whoever started the command."""
    screen = sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return screen and sys.stdout.isatty()
