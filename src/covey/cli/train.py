"""`covey train`: learn who serves whom."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from covey.cli.common import free_folder, interruptible, progress_bar, stored_scenario
from covey.environment import Calibration
from covey.errors import INTERRUPTED, OutputError, ResumeError, ScenarioError
from covey.learners.board import Board
from covey.learners.settings import LearnerSettings, learner_settings
from covey.learners.storage import (
    CHECKPOINT,
    POLICY,
    read_training_header,
    restore_training,
    save_training,
    trained_policy,
    write_inputs,
)
from covey.learners.training import Trainer
from covey.report import write_training_report
from covey.scenario import PRESETS, load_scenario
from covey.scenario.schema import Scenario
from covey.simulation.progress import Progress
from covey.simulation.storage import prepare_folder, versions, write_atomically

#: Seconds between two checkpoints; what they hold does not depend on it.
_CHECKPOINT_S = 15.0


def train(
    scenario: Annotated[
        str, typer.Argument(help=f"A preset ({', '.join(PRESETS)}) or a TOML file. With --resume it may be left out.")
    ] = "quick",
    algorithm: Annotated[
        str, typer.Option(help="dpvd (values add up), iql (every station for itself), qmix (monotone network).")
    ] = "dpvd",
    penalty: Annotated[str, typer.Option(help="progressive (M^2 units) or fixed (5 units).")] = "progressive",
    head: Annotated[
        str | None, typer.Option(help="additive (any network size; the default) or subset (as in the paper).")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs; in each, every network plays an episode.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, layouts and exploration.")] = 0,
    learning: Annotated[
        str, typer.Option(help="surrogate (microseconds a round) or real (federated learning in every step).")
    ] = "surrogate",
    literal: Annotated[
        bool, typer.Option("--literal", help="The paper's own loop, without what makes it learn.")
    ] = False,
    learner: Annotated[
        list[str] | None,
        typer.Option("--learner", metavar="KEY=VALUE", help="Any learner setting, e.g. discount=0.9. Repeatable."),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Calibration file; the one of the scenario when not given.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder; runs/train-SCENARIO-ALGORITHM-seedS when not given.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key, e.g. network.users=20. Repeatable."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted training in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the training that --out holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead of a table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> int:
    """Train one agent per station to choose its users, together.

    Writes to the folder: policy.safetensors, metrics.csv, report.html, training.png, summary.json,
    scenario.toml, learner.json, TensorBoard logs, and a checkpoint. Ctrl-C keeps what was finished;
    --resume continues to exactly the policy an uninterrupted training would have given. Use the policy with
    `covey run SCENARIO --policy FOLDER/policy.safetensors` and judge it with `covey evaluate`.

    Examples:

      covey train quick

      covey train paper --algorithm qmix --epochs 400 --out runs/qmix

      covey train quick --head subset --penalty fixed --learner discount=0.9

      covey train --resume --out runs/qmix
    """
    console = Console(quiet=quiet or as_json)
    notes = Console(stderr=True, quiet=quiet)
    if resume:
        if out is None:
            raise ResumeError("--resume needs the folder of the training; add --out FOLDER")
        folder = out
        chosen, settings, seed, learning = _settings_to_resume(folder, set_, learner)
    else:
        chosen = load_scenario(scenario, set_ or ())
        given = {"algorithm": algorithm, "penalty": penalty, "head": head, "epochs": epochs}
        settings = learner_settings(given, learner or (), literal=literal)
        folder = out or free_folder(f"train-{chosen.name}-{settings.algorithm}-seed{seed}", CHECKPOINT)
    if learning not in ("surrogate", "real"):
        raise ScenarioError(f"--learning is '{learning}'; it is either surrogate or real")
    trainer = Trainer(
        chosen,
        settings,
        seed=seed,
        learning=learning,  # type: ignore[arg-type]
        calibration=None if calibration is None else Calibration.load(calibration),
    )
    with Progress(folder) as progress:
        about = {"kind": "training", "scenario": chosen.name, "policy": settings.algorithm, "seed": seed}
        if resume:
            progress.claim()
            restore_training(trainer, folder)
            progress.start(about, done=trainer.epoch, total=settings.epochs, resume=True)
        else:
            if (folder / CHECKPOINT).exists() and not overwrite:
                raise OutputError(
                    f"'{folder}' already holds a training; continue it with --resume, replace it with --overwrite,"
                    " or choose another folder with --out"
                )
            prepare_folder(folder, overwrite=overwrite)
            progress.start(about, done=0, total=settings.epochs, resume=False)
            write_inputs(trainer, folder)
            save_training(trainer, folder)
        started, interrupted = time.perf_counter(), False
        try:
            with interruptible():
                _train(trainer, folder, progress, notes)
        except KeyboardInterrupt:
            interrupted = True
            progress.interrupted()
        if not interrupted:
            # An interrupted epoch may have left the learner half way; the last checkpoint is what counts.
            save_training(trainer, folder)
        seconds = time.perf_counter() - started
        summary = write_results(trainer, folder, seconds)
    console.print(_table(summary))
    console.print(
        f"Policy in [bold]{folder / POLICY}[/]: open {folder / 'report.html'}", highlight=False, soft_wrap=True
    )
    if as_json and not quiet:
        typer.echo((folder / "summary.json").read_text(encoding="utf-8"), nl=False)
    if interrupted:
        command = f"covey train --resume --out {shlex.quote(str(folder))}"
        notes.print(f"Interrupted in epoch {trainer.epoch + 1} of {settings.epochs}; continue with: {command}")
        return INTERRUPTED
    return 0


def _train(trainer: Trainer, folder: Path, progress: Progress, console: Console) -> None:
    """Train the remaining epochs with a progress bar, checkpoints, lines of progress and logs."""
    total = trainer.settings.epochs
    saved = time.perf_counter()
    with Board(folder, trainer.epoch) as board, progress_bar(console) as bars:
        bar = bars.add_task(trainer.settings.algorithm, total=total, completed=trainer.epoch, now="")
        while not trainer.done:
            row = trainer.run_epoch()
            board.add(row)
            progress.row(row, trainer.epoch)
            if time.perf_counter() - saved > _CHECKPOINT_S:
                save_training(trainer, folder)
                saved = time.perf_counter()
            now = (
                f"reward {row['reward']:,.0f}, violating {row['violating_rounds']:.0%},"
                f" served {row['served']:.1f}, epsilon {row['epsilon']:.2f}"
            )
            bars.update(bar, advance=1, now=now)


def write_results(trainer: Trainer, folder: Path, seconds: float) -> dict[str, Any]:
    """Write policy, summary and report of a training; the summary."""
    policy = trained_policy(trainer)
    policy.save(folder / POLICY)
    last = trainer.rows[-1] if trainer.rows else {}
    steps = trainer.epoch * trainer.settings.networks * trainer.rounds.site.rounds
    summary: dict[str, Any] = {
        "scenario": trainer.scenario.name,
        "algorithm": trainer.settings.algorithm,
        "head": trainer.settings.head,
        "penalty": trainer.settings.penalty,
        "learning": trainer.learning,
        "seed": trainer.seed,
        "epochs": trainer.epoch,
        "environment_steps": steps,
        "gradient_steps": trainer.learner.steps,
        "last_epoch": {key: value for key, value in last.items() if value == value},
        "validation": {way: score for way, score in trainer.best_score.items() if way in trainer.best},
        "wall_seconds": round(seconds, 3),
        "versions": versions(),
    }
    write_atomically(folder / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
    write_training_report(
        trainer.rows,
        trainer.settings,
        trainer.scenario,
        folder,
        seed=trainer.seed,
        learning=trainer.learning,
        versions=versions(),
        write=write_atomically,
    )
    return summary


def _table(summary: dict[str, Any]) -> Table:
    table = Table(title="Training", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for key in (
        "scenario",
        "algorithm",
        "head",
        "penalty",
        "learning",
        "epochs",
        "environment_steps",
        "gradient_steps",
    ):
        value = summary[key]
        table.add_row(key.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    for way, score in summary["validation"].items():
        table.add_row(f"validation reward, {way}", f"{score:,.1f}")
    table.add_row("seconds", f"{summary['wall_seconds']:.1f}")
    return table


def _settings_to_resume(
    folder: Path, overrides: list[str] | None, learner: list[str] | None
) -> tuple[Scenario, LearnerSettings, int, str]:
    header = read_training_header(folder)
    if overrides or learner:
        raise ResumeError("--set and --learner cannot change a training that is being resumed; start a new one")
    settings = LearnerSettings.model_validate(header["settings"])
    return stored_scenario(folder), settings, header["seed"], header["learning"]
