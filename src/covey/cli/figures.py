"""`covey figures`: every figure and every claim, computed again."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from covey.cli.common import Processes, Quiet, Ray, cores, interruptible, progress_bar
from covey.errors import INTERRUPTED, ScenarioError
from covey.figures import FIGURE_NAMES
from covey.figures.scales import SCALES

if TYPE_CHECKING:
    from covey.figures.claims import Claim

_COLOURS = {"reproduced": "green", "direction only": "yellow", "not reproduced": "red", "not testable": "dim"}


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIGURE]...", help=f"{', '.join(FIGURE_NAMES)}, or all (the default)."),
    ] = None,
    scale: Annotated[
        str, typer.Option(help="quick (embedded digits, minutes) or full (CIFAR-10 and FEMNIST, hours).")
    ] = "quick",
    seeds: Annotated[
        int | None, typer.Option(min=1, max=99, help="Seeds of every experiment; 3 at quick, 10 at full by default.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; runs/figures-SCALE when not given.")] = None,
    processes: Processes = None,
    ray: Ray = None,
    only_draw: Annotated[
        bool, typer.Option("--only-draw", help="Compute nothing; draw and judge what is finished, by any version.")
    ] = False,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Reuse what other versions of covey or its libraries have computed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print claims.json instead of a table.")] = False,
    quiet: Quiet = False,
) -> int:
    """Compute the paper's figures 2 to 10 and our own, and judge every claim.

    Writes for each figure a PNG and the CSV behind it, and for all of them claims.json (the paper's claim, our
    estimate with its interval and n, the verdict) and about.json (commands, versions, machine, times, tuning). Every
    experiment is kept as a line of cells.jsonl, so that Ctrl-C loses nothing but what was under way: the same command
    goes on, and nothing finished is computed again. What other versions have computed is computed anew, unless
    --any-version or --only-draw says otherwise; about.json counts the experiments of every version.

    Examples:

      covey figures

      covey figures 7 9 --seeds 5

      covey figures all --scale full --out results/figures

      covey figures all --scale full --ray 10.0.0.1:6379
    """
    from covey.figures.compute import finish
    from covey.figures.plans import plan_of
    from covey.figures.publish import CLAIMS, check_folder, made_elsewhere, publish, work_in
    from covey.simulation.checkpoint import prepare_folder

    chosen = _names(names)
    if scale not in SCALES:
        raise ScenarioError(f"--scale is '{scale}'; it is one of {', '.join(SCALES)}")
    folder = out or Path("runs") / f"figures-{scale}"
    prepare_folder(folder, overwrite=True)
    work = work_in(folder, scale, seeds, any_version=any_version or only_draw)
    check_folder(folder, work.scale)
    notes, started, interrupted = Console(stderr=True, quiet=quiet), time.perf_counter(), False
    if not only_draw:
        try:
            with interruptible(), progress_bar(notes) as progress:
                bar = progress.add_task("figures", total=None, now="")
                finish(
                    plan_of(chosen, work.scale, work.seeds),
                    work.store,
                    processes or cores(),
                    lambda now, done, known: progress.update(bar, completed=done, total=known, now=_short(now)),
                    ray,
                )
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        notes.print(f"Interrupted; what is finished is kept. Go on with: {_command()}", highlight=False)
        return INTERRUPTED
    if others := made_elsewhere(chosen, work):
        notes.print(f"{others} experiments were computed by other versions; about.json counts them.", highlight=False)
    found = publish(chosen, work, seconds=time.perf_counter() - started, command=_command())
    if as_json and not quiet:
        typer.echo((folder / CLAIMS).read_text(encoding="utf-8"), nl=False)
        return 0
    console = Console(quiet=quiet)
    console.print(_table(found))
    console.print(f"Figures, data and claims in [bold]{folder}[/]", highlight=False, soft_wrap=True)
    return 0


def _names(given: Sequence[str] | None) -> list[str]:
    """The figures asked for, in the order in which they are shown."""
    asked = [name for one in given or ["all"] for name in one.split(",") if name]
    for name in asked:
        if name != "all" and name not in FIGURE_NAMES:
            raise ScenarioError(f"there is no figure '{name}'; figures are {', '.join(FIGURE_NAMES)}, or all")
    return [name for name in FIGURE_NAMES if "all" in asked or name in asked]


def _command() -> str:
    """The command as it was given."""
    return shlex.join(["covey", *sys.argv[1:]])


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _table(found: Sequence[Claim]) -> Table:
    table = Table(title="Claims", title_justify="left")
    for heading in ("figure", "claim", "paper", "here", "verdict"):
        table.add_column(heading)
    for claim in found:
        colour = _COLOURS[claim.verdict]
        table.add_row(claim.figure, claim.claim, claim.paper, claim.here, f"[{colour}]{claim.said}[/]")
    return table
