"""The loop behind `covey train`: epochs are played, and observers log, note, save and show what each has done."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from covey.agents.board import Board
from covey.agents.settings import LearnerSettings, learner_settings
from covey.agents.training import Trainer
from covey.agents.training_files import (
    CHECKPOINT,
    POLICY,
    read_training_header,
    restore_training,
    save_training,
    trained_policy,
    write_inputs,
)
from covey.cli.common import free_folder, interruptible, progress_bar, stored_scenario
from covey.environment import Calibration
from covey.errors import INTERRUPTED, OutputError, ResumeError, ScenarioError
from covey.files import versions, write_atomically
from covey.report import write_training_report
from covey.scenario import Scenario, load_scenario
from covey.simulation.checkpoint import prepare_folder
from covey.simulation.progress import Progress

#: Seconds between two checkpoints; what they hold does not depend on it.
_CHECKPOINT_S = 15.0
#: Called after every epoch with its row of metrics.
Observer = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Training:
    """What is trained, and where."""

    scenario: Scenario
    settings: LearnerSettings
    seed: int
    learning: str
    folder: Path
    resume: bool
    overwrite: bool


def new_training(
    scenario: str,
    overrides: list[str],
    given: dict[str, Any],
    learner: list[str],
    *,
    literal: bool,
    seed: int,
    learning: str,
    out: Path | None,
    overwrite: bool,
) -> Training:
    """A training that starts at epoch 1; `given` are learner settings of options of their own, `learner` the others."""
    chosen = load_scenario(scenario, overrides)
    settings = learner_settings(given, learner, literal=literal)
    folder = out or free_folder(f"train-{chosen.name}-{settings.algorithm}-seed{seed}", CHECKPOINT)
    return Training(chosen, settings, seed, learning, folder, resume=False, overwrite=overwrite)


def resumed_training(folder: Path | None, overrides: list[str], learner: list[str]) -> Training:
    """The training that a folder holds, to go on with."""
    if folder is None:
        raise ResumeError("--resume needs the folder of the training; add --out FOLDER")
    header = read_training_header(folder)
    if overrides or learner:
        raise ResumeError("--set and --learner cannot change a training that is being resumed; start a new one")
    settings = LearnerSettings.model_validate(header["settings"])
    scenario = stored_scenario(folder)
    return Training(scenario, settings, header["seed"], header["learning"], folder, resume=True, overwrite=False)


def play_training(
    training: Training, calibration: Path | None, console: Console, notes: Console, *, as_json: bool
) -> int:
    """Train to the end or until interrupted, write the policy and say where it is; the exit code."""
    if training.learning not in ("surrogate", "real"):
        raise ScenarioError(f"--learning is '{training.learning}'; it is either surrogate or real")
    folder = training.folder
    trainer = Trainer(
        training.scenario,
        training.settings,
        seed=training.seed,
        learning=training.learning,  # type: ignore[arg-type]
        calibration=None if calibration is None else Calibration.load(calibration),
    )
    with Progress(folder) as progress:
        if training.resume:
            _restore(training, trainer, progress)
        else:
            _prepare(training, trainer, progress)
        started = time.perf_counter()
        interrupted = _play(trainer, folder, progress, notes)
        if interrupted:
            progress.interrupted()
        else:
            # An interrupted epoch may have left the learner half way; the last checkpoint is what counts.
            save_training(trainer, folder)
        summary = write_results(trainer, folder, time.perf_counter() - started)
    console.print(_table(summary))
    console.print(
        f"Policy in [bold]{folder / POLICY}[/]: open {folder / 'report.html'}", highlight=False, soft_wrap=True
    )
    if as_json:
        typer.echo((folder / "summary.json").read_text(encoding="utf-8"), nl=False)
    if interrupted:
        command = f"covey train --resume --out {shlex.quote(str(folder))}"
        notes.print(f"Interrupted in epoch {trainer.epoch + 1} of {trainer.settings.epochs}; continue with: {command}")
        return INTERRUPTED
    return 0


def _play(trainer: Trainer, folder: Path, progress: Progress, notes: Console) -> bool:
    """Train the epochs that are left; whether that was interrupted."""
    try:
        with interruptible(), Board(folder, trainer.epoch) as board, _bar(trainer, notes) as show:
            if board.missing:
                notes.print(board.missing, highlight=False, markup=False, soft_wrap=True)
            observers: tuple[Observer, ...] = (
                board.add,
                lambda row: progress.row(row, trainer.epoch),
                _saver(trainer, folder),
                show,
            )
            while not trainer.done:
                row = trainer.run_epoch()
                for observe in observers:
                    observe(row)
    except KeyboardInterrupt:
        return True
    return False


def _about(training: Training) -> dict[str, Any]:
    policy = training.settings.algorithm
    return {"kind": "training", "scenario": training.scenario.name, "policy": policy, "seed": training.seed}


def _restore(training: Training, trainer: Trainer, progress: Progress) -> None:
    """Take over what the folder holds, under its lock."""
    progress.claim()
    restore_training(trainer, training.folder)
    progress.start(_about(training), done=trainer.epoch, total=training.settings.epochs, resume=True)


def _prepare(training: Training, trainer: Trainer, progress: Progress) -> None:
    """Put everything that a resumed training needs into the folder, and the state before epoch 1."""
    folder = training.folder
    if (folder / CHECKPOINT).exists() and not training.overwrite:
        raise OutputError(
            f"'{folder}' already holds a training; continue it with --resume, replace it with --overwrite,"
            " or choose another folder with --out"
        )
    prepare_folder(folder, overwrite=training.overwrite)
    progress.start(_about(training), done=0, total=training.settings.epochs, resume=False)
    write_inputs(trainer, folder)
    save_training(trainer, folder)


def _saver(trainer: Trainer, folder: Path) -> Observer:
    """Saves a checkpoint now and then, as an observer."""
    saved = time.perf_counter()

    def save(row: dict[str, Any]) -> None:
        nonlocal saved
        if time.perf_counter() - saved > _CHECKPOINT_S:
            save_training(trainer, folder)
            saved = time.perf_counter()

    return save


@contextmanager
def _bar(trainer: Trainer, console: Console) -> Iterator[Observer]:
    """A progress bar, as an observer."""
    settings = trainer.settings
    with progress_bar(console) as bars:
        bar = bars.add_task(settings.algorithm, total=settings.epochs, completed=trainer.epoch, now="")

        def show(row: dict[str, Any]) -> None:
            now = (
                f"reward {row['reward']:,.0f}, violating {row['violating_rounds']:.0%},"
                f" served {row['served']:.1f}, epsilon {row['epsilon']:.2f}"
            )
            bars.update(bar, advance=1, now=now)

        yield show


def write_results(trainer: Trainer, folder: Path, seconds: float) -> dict[str, Any]:
    """Write policy, summary and report of a training; the summary."""
    policy = trained_policy(trainer)
    policy.save(folder / POLICY)
    last = trainer.rows[-1] if trainer.rows else {}
    steps = trainer.epoch * trainer.settings.networks * trainer.rounds.limits.rounds
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
