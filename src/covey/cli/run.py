"""`covey run`: the main job."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from covey.errors import INTERRUPTED, ResumeError
from covey.report import summary_table, write_report
from covey.scenario import PRESETS, dump_scenario, load_scenario
from covey.scenario.schema import Scenario
from covey.simulation import Simulation
from covey.simulation.storage import (
    CHECKPOINT,
    prepare_folder,
    read_checkpoint_header,
    restore_checkpoint,
    save_checkpoint,
    versions,
    write_atomically,
    write_results,
)


def run(
    scenario: Annotated[
        str, typer.Argument(help=f"A preset ({', '.join(PRESETS)}) or a TOML file. With --resume it may be left out.")
    ] = "quick",
    policy: Annotated[
        str, typer.Option(help="Who decides which users are served: random, nearest, greedy, local_search, exact.")
    ] = "greedy",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds to play; the scenario's own when not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in the run.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; runs/SCENARIO-POLICY-seedS when not given.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key, e.g. network.users=20. Repeatable."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that compute for the users; results do not depend on it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that --out holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> int:
    """Train K models with users over a simulated network, privately, round by round.

    Writes to the folder: summary.json, rounds.csv, users.csv, scenario.toml, models.safetensors,
    map.png, curves.png, blocks.png, report.html, and a checkpoint after every round. Ctrl-C keeps
    what was finished; --resume continues to exactly the result an uninterrupted run would have had.

    Examples:

      covey run quick

      covey run paper --policy local_search --seed 3 --out results/a

      covey run quick --set network.users=8 --set privacy.v_max=6 --rounds 30

      covey run --resume --out results/a
    """
    console = Console(quiet=quiet or as_json)
    notes = Console(stderr=True, quiet=quiet)
    if resume:
        folder = _folder_to_resume(out)
        chosen, policy, seed, rounds = _settings_to_resume(folder, set_, rounds)
    else:
        chosen = load_scenario(scenario, set_ or ())
        folder = out if out is not None else _free_folder(f"{chosen.name}-{policy}-seed{seed}")
    with Simulation(
        chosen, policy, rounds=rounds, seed=seed, workers=workers or _sensible_workers(chosen)
    ) as simulation:
        started, interrupted = time.perf_counter(), False
        try:
            with _interruptible():
                if resume:
                    restore_checkpoint(simulation, folder)
                else:
                    prepare_folder(folder, overwrite=overwrite)
                    write_atomically(folder / "scenario.toml", dump_scenario(chosen).encode())
                    save_checkpoint(simulation, folder)
                _play(simulation, folder, notes)
        except KeyboardInterrupt:
            if not (folder / CHECKPOINT).exists():
                raise
            interrupted = True
        seconds = time.perf_counter() - started
        history = simulation.history
    try:
        write_results(history, folder, {"versions": versions(), "wall_seconds": round(seconds, 3)})
        write_report(history, folder, versions(), write_atomically)
    except KeyboardInterrupt:
        interrupted = True
    console.print(summary_table(history))
    console.print(f"Results in [bold]{folder}[/]: open {folder / 'report.html'}", highlight=False, soft_wrap=True)
    if as_json and not quiet:
        typer.echo((folder / "summary.json").read_text(encoding="utf-8"), nl=False)
    if interrupted:
        command = f"covey run --resume --out {shlex.quote(str(folder))}"
        notes.print(f"Interrupted after round {len(history.records)} of {history.rounds}; continue with: {command}")
        return INTERRUPTED
    return 0


def _play(simulation: Simulation, folder: Path, console: Console) -> None:
    """Play the remaining rounds with a progress bar and a checkpoint after each."""
    history = simulation.history
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=False, disable=console.quiet) as progress:
        bar = progress.add_task(history.scenario.name, total=history.rounds, completed=len(history.records), now="")
        while not simulation.done:
            record = simulation.play()
            save_checkpoint(simulation, folder)
            now = f"loss {record.loss:.2f}, grouped {record.clustering_accuracy:.0%}, served {record.served}"
            progress.update(bar, advance=1, now=now)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let a polite kill (SIGTERM) end the run like Ctrl-C, with everything saved."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _folder_to_resume(out: Path | None) -> Path:
    if out is None:
        raise ResumeError("--resume needs the folder of the run; add --out FOLDER")
    return out


def _settings_to_resume(
    folder: Path, overrides: list[str] | None, rounds: int | None
) -> tuple[Scenario, str, int, int]:
    """Scenario, policy, seed and rounds of the run in `folder`; more rounds extend it."""
    header: dict[str, Any] = read_checkpoint_header(folder)
    if overrides:
        raise ResumeError("--set cannot change a run that is being resumed; start a new one without --resume")
    stored = folder / "scenario.toml"
    if not stored.is_file():
        raise ResumeError(f"'{folder}' has lost its scenario.toml and cannot be resumed; start again with --overwrite")
    if rounds is not None and rounds < header["round"]:
        raise ResumeError(f"the run has already played {header['round']} rounds; --rounds must be at least that")
    return load_scenario(stored), header["policy"], header["seed"], rounds or header["rounds"]


def _free_folder(name: str) -> Path:
    """runs/NAME, or runs/NAME-2, ... when taken: a new run never touches an old one."""
    base = Path("runs") / name.replace(os.sep, "_")
    folder, number = base, 1
    while (folder / CHECKPOINT).exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def _sensible_workers(scenario: Scenario) -> int:
    """All cores for models whose round takes seconds, one process for small ones."""
    if scenario.model.name != "cnn":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, scenario.network.users)
