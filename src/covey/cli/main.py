"""The `covey` command: its sub-commands, and how errors become one sentence and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import metadata

import click
import typer
from rich.console import Console
from rich.markup import escape

from covey.cli import bench, bound, calibrate, dashboard, data, evaluate, figures, privacy, run, train
from covey.errors import EXIT_CODES, INTERRUPTED, CoveyError

_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."

app = typer.Typer(
    name="covey",
    help="Clustered federated learning over wireless networks, with differential privacy.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("run", epilog=_EPILOG)(run.run)
app.command("train", epilog=_EPILOG)(train.train)
app.command("evaluate", epilog=_EPILOG)(evaluate.evaluate)
app.command("calibrate", epilog=_EPILOG)(calibrate.calibrate_)
app.command("privacy", epilog=_EPILOG)(privacy.privacy)
app.command("bound", epilog=_EPILOG)(bound.bound)
app.command("figures", epilog=_EPILOG)(figures.figures)
app.command("dashboard", epilog=_EPILOG)(dashboard.dashboard)
app.add_typer(data.app, name="data", help="List, fetch and inspect data sets.")
app.command("bench", epilog=_EPILOG)(bench.bench)


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


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with a documented code; users never see a traceback."""
    console = Console(stderr=True, soft_wrap=True)
    try:
        code = app(args=arguments, standalone_mode=False)
    except CoveyError as error:
        console.print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        console.print("[yellow]Interrupted.[/]")
        code = INTERRUPTED
    except Exception as error:  # a mistake in covey or in a user's own class: one sentence, details on request
        if os.environ.get("COVEY_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}"
        console.print(f"[bold red]Unexpected error:[/] {escape(what)}; set COVEY_DEBUG=1 to see where", highlight=False)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
