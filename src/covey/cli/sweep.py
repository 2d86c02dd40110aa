"""`covey sweep`: trainings with several seeds and settings, on this machine or on a cluster."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from covey.cli.common import Processes, Ray, cores, interruptible, progress_bar
from covey.cli.train import write_results
from covey.environment import Calibration, Learning, calibration_for
from covey.errors import INTERRUPTED, OutputError, ResumeError, ScenarioError
from covey.evaluation import mean_interval
from covey.learners.settings import LearnerSettings, learner_settings
from covey.learners.storage import calibration_digest, read_training_header, save_training, write_inputs
from covey.learners.training import Trainer
from covey.pools import in_order, open_pool, results
from covey.scenario import PRESETS, Scenario, load_scenario
from covey.scenario.load import fingerprint
from covey.simulation.storage import csv_bytes, make_folder, write_atomically

#: What tells a finished training, written last.
_SUMMARY = "summary.json"
#: The table of all trainings.
TABLE = "sweep.csv"
#: Characters of a folder's name; file systems take 255 bytes.
_LONGEST_NAME = 200
#: A key and its values, as they were written.
Axis = tuple[str, list[str]]


@dataclass(frozen=True)
class Wanted:
    """One training: its folder below that of the sweep, what was varied, and everything it depends on."""

    name: str
    varied: dict[str, str]
    scenario: Scenario
    settings: LearnerSettings
    seed: int
    learning: Learning
    calibration: Calibration | None


def sweep(
    scenario: Annotated[str, typer.Argument(help=f"A preset ({', '.join(PRESETS)}) or a TOML file.")] = "quick",
    out: Annotated[Path, typer.Option(help="Folder; every training has one of its own in it.")] = Path("runs/sweep"),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of every setting, from --first-seed on.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="KEY=A,B,...",
            help="Values of a learner setting (algorithm, discount, ...) or, with a dot, of a scenario key. Repeatable:"
            " all combinations.",
        ),
    ] = None,
    learner: Annotated[
        list[str] | None, typer.Option("--learner", metavar="KEY=VALUE", help="A learner setting of all. Repeatable.")
    ] = None,
    learning: Annotated[str, typer.Option(help="surrogate or real.")] = "surrogate",
    calibration: Annotated[
        Path | None, typer.Option(help="Calibration file of the surrogate; the one of each scenario when not given.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A scenario key of all. Repeatable.")
    ] = None,
    processes: Processes = None,
    ray: Ray = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON instead of a table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> int:
    """Train with several seeds and settings, each in a folder of its own.

    Every folder has the results that `covey train` writes (no logs for TensorBoard), and sweep.csv has a row for
    each: what was varied, seed, and how the training ended. What is finished is kept: the same command, after Ctrl-C
    or a crash, goes on with the rest. Policies do not depend on the number of processes, nor on whether a cluster
    computed them.

    Examples:

      covey sweep quick --vary algorithm=dpvd,iql,qmix --seeds 5

      covey sweep paper --vary learning_rate=1e-3,3e-4 --vary network.users=12,24 --out runs/rates --ray local
    """
    axes = [_axis(text) for text in vary or ()]
    wanted = list(
        _wanted(scenario, set_ or (), learner or (), axes, range(first_seed, first_seed + seeds), learning, calibration)
    )
    _check_names(axes, wanted)
    make_folder(out)
    missing = [one for one in wanted if not _finished(out / one.name, one)]
    notes = Console(stderr=True, quiet=quiet)
    try:
        with interruptible(), progress_bar(notes) as progress:
            bar = progress.add_task("trainings", total=len(wanted), completed=len(wanted) - len(missing), now="")
            if missing:
                with open_pool(processes or cores(), ray) as pool:
                    for one, files in results(pool, in_order((one, compute, (one,)) for one in missing)):
                        _keep(out / one.name, files)
                        progress.update(bar, advance=1, now=one.name)
    except KeyboardInterrupt:
        notes.print("Interrupted; what is finished is kept: give the command again.", highlight=False)
        return INTERRUPTED
    rows = [_row(out / one.name, one) for one in wanted]
    write_atomically(out / TABLE, csv_bytes(rows))
    if as_json and not quiet:
        typer.echo(json.dumps(rows, indent=2))
        return 0
    console = Console(quiet=quiet)
    console.print(_table(wanted, rows))
    console.print(f"{len(rows)} trainings in [bold]{out}[/]: {out / TABLE}", highlight=False, soft_wrap=True)
    return 0


def compute(wanted: Wanted) -> dict[str, bytes]:
    """Train, in a folder of its own; the files that a training leaves, by name."""
    trainer = Trainer(
        wanted.scenario,
        wanted.settings,
        seed=wanted.seed,
        learning=wanted.learning,
        calibration=wanted.calibration,
    )
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_inputs(trainer, folder)
        while not trainer.done:
            trainer.run_epoch()
        save_training(trainer, folder)
        write_results(trainer, folder, time.perf_counter() - started)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _wanted(
    source: str,
    overrides: Sequence[str],
    learner: Sequence[str],
    axes: Sequence[Axis],
    seeds: Sequence[int],
    learning: str,
    calibration: Path | None,
) -> Iterator[Wanted]:
    """All trainings, combinations first, seeds within them; mistakes are found before anything is computed."""
    if learning not in ("surrogate", "real"):
        raise ScenarioError(f"--learning is '{learning}'; it is either surrogate or real")
    if calibration is not None and learning == "real":
        raise ScenarioError("--calibration is for the surrogate; leave it out with --learning real")
    given = None if calibration is None else Calibration.load(calibration)
    for texts in itertools.product(*(values for _, values in axes)):
        varied = {key: text for (key, _), text in zip(axes, texts, strict=True)}
        scenario = load_scenario(source, [*overrides, *(f"{k}={v}" for k, v in varied.items() if "." in k)])
        settings = learner_settings(
            {}, [*learner, *(f"{k}={v}" for k, v in varied.items() if "." not in k)], literal=False
        )
        # The machine that computes may have another one.
        surrogate = (given or calibration_for(scenario)) if learning == "surrogate" else None
        for seed in seeds:
            name = "-".join([*(f"{key}={text}" for key, text in varied.items()), f"seed{seed}"])
            name = re.sub(r"[^\w.,=+-]+", "_", name)
            yield Wanted(name, varied, scenario, settings, seed, cast("Learning", learning), surrogate)


def _check_names(axes: Sequence[Axis], wanted: Sequence[Wanted]) -> None:
    """Every key and every training once, in folders whose names a file system takes."""
    keys = [key for key, _ in axes]
    names = [one.name for one in wanted]
    for what, found in (("--vary names the key", keys), ("--vary asks twice for the training", names)):
        for name in found:
            if found.count(name) > 1:
                raise ScenarioError(f"{what} '{name}' more than once; give every key once, and every value once")
    if len(longest := max(names, key=len)) > _LONGEST_NAME:
        raise ScenarioError(
            f"the folder '{longest[:40]}...' would have a name of {len(longest)} characters; at most {_LONGEST_NAME}"
            " are possible: vary fewer keys, or write long values into scenario files"
        )


def _axis(text: str) -> Axis:
    """Key and values of --vary; commas inside brackets and quotes do not separate."""
    key, sign, rest = text.partition("=")
    values, depth, quoted = [""], 0, False
    for character in rest:
        quoted ^= character == '"'
        depth += (character in "[{") - (character in "]}") if not quoted else 0
        if character == "," and not depth and not quoted:
            values.append("")
        else:
            values[-1] += character
    if not key or not sign or not all(values):
        raise ScenarioError(f"--vary is '{text}'; give a key and values, e.g. --vary learning_rate=1e-3,3e-4")
    return key, values


def _finished(folder: Path, wanted: Wanted) -> bool:
    """Whether a folder holds this training to its end; another one there is an error."""
    if not (folder / _SUMMARY).is_file():
        return False
    try:
        header = read_training_header(folder)
    except ResumeError:
        return False  # computed again
    expected = {
        "version": metadata.version("covey"),
        "scenario": fingerprint(wanted.scenario),
        "settings": wanted.settings.model_dump(mode="json"),
        "learning": wanted.learning,
        "calibration": calibration_digest(wanted.calibration),
        "seed": wanted.seed,
    }
    for key, value in expected.items():
        if header.get(key) != value:
            raise OutputError(
                f"'{folder}' holds a training with another {key}; choose another folder with --out, or delete this one"
            )
    return bool(header["epoch"] >= wanted.settings.epochs)


def _keep(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files of a training, the summary last: it says that all is there."""
    make_folder(folder)
    for name in sorted(files, key=lambda name: name == _SUMMARY):
        write_atomically(folder / name, files[name])


def _row(folder: Path, wanted: Wanted) -> dict[str, Any]:
    """How a training ended: its last epoch, and the best validation of stations alone and guarded."""
    summary = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))
    last = {name: summary["last_epoch"].get(name) for name in ("reward", "violating_rounds", "served")}
    validation = {f"validation_{way}": score for way, score in summary["validation"].items()}
    return {"folder": wanted.name, **wanted.varied, "seed": wanted.seed, **last, **validation}


def _table(wanted: Sequence[Wanted], rows: Sequence[dict[str, Any]]) -> Table:
    """Means over seeds, one line for each combination."""
    columns = [name for name in rows[0] if name not in ("folder", "seed", *wanted[0].varied)]
    table = Table(title="Trainings, mean over seeds with 95 % interval", title_justify="left")
    for name in (*wanted[0].varied, "seeds", *columns):
        table.add_column(name.replace("_", " "), justify="left" if name in wanted[0].varied else "right")
    for _, group in itertools.groupby(zip(wanted, rows, strict=True), key=lambda pair: pair[0].varied):
        members = list(group)
        cells = [_mean([row.get(name) for _, row in members]) for name in columns]
        table.add_row(*members[0][0].varied.values(), str(len(members)), *cells)
    return table


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "none"
    if len(known) == 1:
        return f"{known[0]:,.4g}"
    estimate = mean_interval(np.array(known))
    return f"{estimate.value:,.4g} ± {estimate.half_width:,.2g}"
