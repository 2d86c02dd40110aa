"""The `covey` command: its sub-commands, and how errors become one sentence and an exit code."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any, cast

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from covey.cli.mistakes import SUGGEST, Mistake
from covey.errors import EXIT_CODES, INTERRUPTED, CoveyError, PartWarning, ScenarioError

_TOO_LARGE = (
    "the memory of this machine is not enough for that; lower what is largest of network.users, data.samples_max,"
    " data.test_samples, data.features, data.classes, the sizes in [model] and --workers"
)
_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."
#: Commands in the order of the help: module, function or group of commands there, and what help says in one line.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Train K models with users over a simulated network, privately, round by round."),
    "train": ("train", "train", "Train one agent per station to choose its users, together."),
    "sweep": ("sweep", "sweep", "Train with several seeds and settings, each in a folder of its own."),
    "evaluate": (
        "evaluate",
        "evaluate",
        "Compare a trained policy, alone and guarded, with the reference policies, layout by layout.",
    ),
    "calibrate": (
        "calibrate",
        "calibrate_",
        "Fit the surrogate's constants to real runs of a scenario, and report how wrong it is.",
    ),
    "privacy": (
        "privacy",
        "privacy",
        "Answer budget questions: of rounds, noise, epsilon and delta, give three and get the fourth.",
    ),
    "methods": (
        "methods",
        "methods",
        "List every way to find the groups and to announce tasks: paper, needs, cost, and how to set it.",
    ),
    "bound": ("bound", "bound", "Play a run and hold the corrected convergence bound against what it did."),
    "figures": ("figures", "figures", "Compute the paper's figures 2 to 10 and our own, and judge every claim."),
    "deploy": ("deploy", "app", "Play the same rounds with real devices, over Flower."),
    "dashboard": (
        "dashboard",
        "dashboard",
        "Serve a web page that lists, compares, follows, starts, stops and resumes runs and trainings.",
    ),
    "data": ("data", "app", "List, fetch and inspect data sets."),
    "bench": (
        "bench",
        "bench",
        "Measure covey beside a plain PyTorch loop, Opacus and cvxpy, in one run on this machine.",
    ),
}


class Commands(TyperGroup):
    """Knows all commands by name, and loads one when it is used: most of them need seconds to be imported."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: TyperCommand(name, help=line) for name, (_, _, line) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that was asked for, loaded."""
        name, command, left = super().resolve_command(ctx, args)
        return name, load(name) if name in COMMANDS else command, left


def load(name: str) -> TyperCommand | TyperGroup:
    """One command, ready to be used."""
    module, attribute, line = COMMANDS[name]
    found = getattr(import_module(f"covey.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(rich_markup_mode="rich", add_completion=False)
        alone.command(name, epilog=_EPILOG)(found)
        return cast("TyperCommand", typer.main.get_command(alone))
    group = cast("TyperGroup", typer.main.get_command(found))
    group.name, group.help = name, line
    return group


app = typer.Typer(
    name="covey",
    cls=Commands,
    help="Clustered federated learning over wireless networks, with differential privacy.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    suggest_commands=SUGGEST,
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"covey {metadata.version('covey')}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Clustered federated learning over wireless networks, with differential privacy."""


@contextmanager
def _warnings_shown(console: Console) -> Iterator[None]:
    """Warnings about parts in one line, without the place in covey that gives them."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, PartWarning):
                console.print(f"[yellow]Warning:[/] {escape(str(message))}", highlight=False)
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show
        yield


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with a documented code; users never see a traceback."""
    console = Console(stderr=True, soft_wrap=True)
    try:
        _refuse_empty_out(sys.argv[1:] if arguments is None else arguments)
        with _warnings_shown(console):
            code = app(args=arguments, standalone_mode=False)
    except CoveyError as error:
        if os.environ.get("COVEY_DEBUG") and (error.__cause__ is not None or hasattr(error, "__notes__")):
            raise
        console.print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False)
        code = error.exit_code
    except Mistake as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        console.print("[yellow]Interrupted.[/]")
        code = INTERRUPTED
    except SystemExit as error:  # of a module or part of others, wherever it was called: nothing of covey's raises it
        console.print(
            f"[bold red]Error:[/] code that this command calls ended it with sys.exit({escape(repr(error.code))}), so"
            " that nothing is complete; let it return or raise an error",
            highlight=False,
        )
        code = 1
    except Exception as error:  # a mistake in covey or in a user's own class: one sentence, details on request
        if os.environ.get("COVEY_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}"
        if _out_of_memory(error):
            console.print(f"[bold red]Error:[/] {escape(f'{_TOO_LARGE} ({what})')}", highlight=False)
            code = ScenarioError.exit_code
        else:
            hint = "set COVEY_DEBUG=1 to see where"
            console.print(f"[bold red]Unexpected error:[/] {escape(what)}; {hint}", highlight=False)
            code = 1
    sys.exit(code if isinstance(code, int) else 0)


def _refuse_empty_out(arguments: list[str]) -> None:
    """Refuse `--out ""`, as of a shell variable that is not set: as a path it would be the current folder."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if argument == "--out=" or (before, argument) == ("--out", ""):
            raise ScenarioError("--out is empty; name a folder or file (. is the current folder), or leave it out")


def _out_of_memory(error: Exception) -> bool:
    """Whether numpy, numba or torch, which has no error of its own for it, could not allocate an array."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error))


if __name__ == "__main__":
    main()
