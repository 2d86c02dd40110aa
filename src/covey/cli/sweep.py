"""`covey sweep`: trainings with several seeds and settings, on this machine or on a cluster."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from covey.cli.common import Processes, Quiet, Ray, ScenarioName, cores, interruptible, progress_bar
from covey.errors import INTERRUPTED, OutputError, ResumeError, ScenarioError
from covey.files import csv_bytes, make_folder, write_atomically
from covey.jobs import Store, digest, in_order, key_of, open_pool, results, scenario_digest
from covey.scenario import Scenario, load_scenario
from covey.scenario.load import fingerprint

if TYPE_CHECKING:
    from covey.agents.settings import LearnerSettings
    from covey.environment import Calibration, Learning

#: How a training ended, in its folder.
_SUMMARY = "summary.json"
#: The page of a training, which may be written anew or deleted.
_REPORT = "report.html"
#: The store of finished trainings, in the folder of the sweep.
STORE = "trainings.jsonl"
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

    @property
    def kind(self) -> str:
        """What a store calls such a job."""
        return "training"

    @property
    def label(self) -> str:
        """The folder."""
        return self.name

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything that the training depends on, apart from versions, and where it is written."""
        return {
            "folder": self.name,
            "scenario": scenario_digest(self.scenario),
            "settings": self.settings.model_dump(mode="json"),
            "seed": self.seed,
            "learning": self.learning,
            "surrogate": None if self.calibration is None else digest(self.calibration.constants.to_dict()),
        }

    @cached_property
    def key(self) -> str:
        """Under which a store finds the training."""
        return key_of(self.kind, self.content)


def sweep(
    scenario: ScenarioName = "quick",
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
    quiet: Quiet = False,
) -> int:
    """Train with several seeds and settings, each in a folder of its own.

    Every folder has the results that `covey train` writes (no logs for TensorBoard), and sweep.csv has a row for
    each: what was varied, seed, and how the training ended. What is finished is kept (trainings.jsonl): the same
    command, after Ctrl-C or a crash, goes on with the rest. Policies do not depend on the number of processes, nor on
    whether a cluster computed them.

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
    store = Store(out / STORE)
    missing = [one for one in wanted if not store.intact(one)]
    for one in missing:
        _refuse_another(out / one.name, one)
    notes = Console(stderr=True, quiet=quiet)
    try:
        with interruptible(), progress_bar(notes) as progress:
            bar = progress.add_task("trainings", total=len(wanted), completed=len(wanted) - len(missing), now="")
            if missing:
                with open_pool(processes or cores(), ray) as pool:
                    for one, files in results(pool, in_order((one, compute, (one,)) for one in missing)):
                        _keep(store, one, files)
                        progress.update(bar, advance=1, now=one.name)
    except KeyboardInterrupt:
        notes.print("Interrupted; what is finished is kept: give the command again.", highlight=False)
        return INTERRUPTED
    rows = [{"folder": one.name, **one.varied, "seed": one.seed, **store[one]} for one in wanted]
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
    from covey.agents.training import Trainer
    from covey.agents.training_files import save_training, write_inputs
    from covey.cli.train_loop import write_results

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
    from covey.agents.settings import learner_settings
    from covey.environment import Calibration, calibration_for

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


def _refuse_another(folder: Path, wanted: Wanted) -> None:
    """Raise `OutputError` if a folder holds another training, which would be overwritten."""
    from covey.agents.training_files import calibration_digest, read_training_header

    if not (folder / _SUMMARY).is_file():
        return
    try:
        header = read_training_header(folder)
    except ResumeError:
        return  # damaged: computed again
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


def _keep(store: Store, wanted: Wanted, files: dict[str, bytes]) -> None:
    """Write the files of a training, the summary last, and the record, which vouches for all but the report."""
    folder = store.folder / wanted.name
    make_folder(folder)
    write_atomically(folder / _REPORT, files[_REPORT])
    kept = sorted(files.keys() - {_REPORT}, key=lambda name: (name == _SUMMARY, name))
    store.keep(wanted, _ending(files), files={f"{wanted.name}/{name}": files[name] for name in kept})


def _ending(files: dict[str, bytes]) -> dict[str, Any]:
    """How a training ended: its last epoch, and the best validation of stations alone and guarded."""
    summary = json.loads(files[_SUMMARY])
    last = {name: summary["last_epoch"].get(name) for name in ("reward", "violating_rounds", "served")}
    return last | {f"validation_{way}": score for way, score in summary["validation"].items()}


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
    import numpy as np

    from covey.evaluation import mean_interval

    known = [value for value in values if value is not None]
    if not known:
        return "none"
    if len(known) == 1:
        return f"{known[0]:,.4g}"
    estimate = mean_interval(np.array(known))
    return f"{estimate.value:,.4g} ± {estimate.half_width:,.2g}"
