"""The loop behind `covey run`: rounds are played, and observers save, note and show what each has done."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console

from covey.agents.policy import LearnedPolicy
from covey.agents.training_files import POLICY
from covey.association import Policy
from covey.cli.common import cores, free_folder, interruptible, progress_bar, stored_scenario
from covey.cli.policy_option import named_policy, short_name
from covey.data import data_root
from covey.errors import INTERRUPTED, ResumeError
from covey.files import versions, write_atomically
from covey.jobs import Store
from covey.privacy import JOURNAL, Journal
from covey.radio import channel_and_mobility
from covey.report import summary_table, write_report
from covey.run_files import DEPLOYMENT
from covey.scenario import Scenario, dump_scenario, load_scenario
from covey.scenario.load import fingerprint
from covey.simulation import History, Simulation
from covey.simulation.checkpoint import (
    CHECKPOINT,
    check_rounds,
    prepare_folder,
    read_checkpoint_header,
    restore_checkpoint,
    save_checkpoint,
    write_results,
)
from covey.simulation.progress import Progress
from covey.simulation.record import RoundRecord

TRACE = "trace.csv"
#: Whether --reference or --no-reference was given; a run without either has no such file.
REFERENCE = "reference.json"
#: Called after every round with its record.
Observer = Callable[[RoundRecord], None]


@dataclass(frozen=True)
class Run:
    """What is played, and where: policy is its name; trace the measurements to use; rounds the scenario's if None.

    reference: whether accuracy is compared with a central model, by --reference, --no-reference or what the folder
    keeps of them; None where that is cheap, or was done before.
    """

    scenario: Scenario
    policy: str
    seed: int
    rounds: int | None
    folder: Path
    trace: Path | None
    workers: int | None
    resume: bool
    overwrite: bool
    reference: bool | None = None


def new_run(
    scenario: str,
    overrides: list[str],
    *,
    policy: str,
    seed: int,
    rounds: int | None,
    out: Path | None,
    trace: Path | None,
    workers: int | None,
    overwrite: bool,
    reference: bool | None = None,
) -> Run:
    """A run that starts at round 1."""
    chosen = load_scenario(scenario, overrides)
    folder = out if out is not None else free_folder(f"{chosen.name}-{short_name(policy)}-seed{seed}", CHECKPOINT)
    return Run(chosen, policy, seed, rounds, folder, trace, workers, False, overwrite, reference)


def resumed_run(
    folder: Path | None,
    overrides: list[str],
    *,
    scenario: str | None = None,
    policy: str | None = None,
    seed: int | None = None,
    rounds: int | None,
    trace: Path | None,
    workers: int | None,
    overwrite: bool = False,
    reference: bool | None = None,
) -> Run:
    """The run that a folder holds, to go on with.

    More rounds extend it, unless its noise was planned for a target; nothing else of it can be changed.
    """
    if folder is None:
        raise ResumeError("--resume needs the folder of the run; add --out FOLDER")
    if overwrite:
        raise ResumeError("--resume goes on with the run that --overwrite would replace; leave out one of the two")
    if (folder / DEPLOYMENT).exists():
        raise ResumeError(
            f"'{folder}' is a run with real devices; go on with: covey deploy run --resume --out"
            f" {shlex.quote(str(folder))}"
        )
    header: dict[str, Any] = read_checkpoint_header(folder, checked=True)
    if overrides:
        raise ResumeError(
            "--set, --security and --identity cannot change a run that is being resumed; start a new one without"
            " --resume"
        )
    stored = stored_scenario(folder)
    _refuse_another(folder, header, stored, scenario, policy, seed)
    if rounds is not None and rounds < header["round"]:
        raise ResumeError(f"the run has already played {header['round']} rounds; --rounds must be at least that")
    if trace is not None:
        raise ResumeError("--trace cannot change a run that is being resumed; start a new one without --resume")
    kept = folder / TRACE
    trace = kept if kept.is_file() else None
    rounds = rounds or header["rounds"]
    check_rounds(stored, header, rounds, folder)
    reference = _kept_reference(folder) if reference is None else reference
    return Run(stored, header["policy"], header["seed"], rounds, folder, trace, workers, True, False, reference)


def _refuse_another(
    folder: Path, header: dict[str, Any], stored: Scenario, scenario: str | None, policy: str | None, seed: int | None
) -> None:
    """Refuse a scenario, policy or seed that was given and is not that of the run to be resumed."""
    for option, given, own in (("--policy", policy, header["policy"]), ("--seed", seed, header["seed"])):
        if given is not None and given != own:
            raise ResumeError(
                f"{option} is {given}, but the run in '{folder}' has {own}, which cannot be changed; leave {option}"
                " out, or start a new run without --resume"
            )
    if scenario is not None and fingerprint(load_scenario(scenario)) != fingerprint(stored):
        raise ResumeError(
            f"the run in '{folder}' has the scenario of its scenario.toml, which is not that of '{scenario}' and cannot"
            " be changed; leave SCENARIO out, or start a new run without --resume"
        )


def _kept_reference(folder: Path) -> bool | None:
    """Whether --reference or --no-reference was given to the run that a folder holds; None for neither."""
    path = folder / REFERENCE
    if not path.exists():
        return None
    try:
        chosen = json.loads(path.read_text(encoding="utf-8"))["reference"]
    except (OSError, ValueError, KeyError, TypeError):
        chosen = None
    if not isinstance(chosen, bool):
        raise ResumeError(
            f"'{path}' is damaged, so that it is not known whether accuracy is compared with a central model; give"
            " --reference or --no-reference with --resume"
        )
    return chosen


def _keep_reference(folder: Path, chosen: bool | None) -> None:
    """Keep whether --reference or --no-reference was given, for whoever resumes the run."""
    if chosen is None:
        (folder / REFERENCE).unlink(missing_ok=True)
    else:
        write_atomically(folder / REFERENCE, json.dumps({"reference": chosen}).encode() + b"\n")


def play_run(run: Run, console: Console, notes: Console, *, as_json: bool) -> int:
    """Play a run to its end or until it is interrupted, write its results and say where they are; the exit code."""
    channel, mobility = channel_and_mobility(run.scenario, run.seed, "" if run.trace is None else str(run.trace))
    decides = named_policy(run.policy, run.scenario, run.folder / POLICY if run.resume else None, notes)
    with Progress(run.folder) as progress:
        with Simulation(
            run.scenario,
            decides,
            rounds=run.rounds,
            seed=run.seed,
            channel=channel,
            mobility=mobility,
            workers=run.workers or _sensible_workers(run.scenario),
            journal=Journal(run.folder / JOURNAL),
        ) as simulation:
            simulation.history.policy = run.policy
            started = time.perf_counter()
            interrupted = _play(run, simulation, progress, notes)
            seconds = time.perf_counter() - started
        history = simulation.history
        interrupted |= _write_results(run.folder, history, decides, seconds)
        if interrupted:
            progress.interrupted()
    console.print(summary_table(history))
    report = run.folder / "report.html"
    console.print(f"Results in [bold]{run.folder}[/]: open {report}", highlight=False, soft_wrap=True)
    if as_json:
        typer.echo((run.folder / "summary.json").read_text(encoding="utf-8"), nl=False)
    if interrupted:
        command = f"covey run --resume --out {shlex.quote(str(run.folder))}"
        notes.print(f"Interrupted after round {len(history.records)} of {history.rounds}; continue with: {command}")
        return INTERRUPTED
    return 0


def _play(run: Run, simulation: Simulation, progress: Progress, notes: Console) -> bool:
    """Play the rounds that are left; whether the run was interrupted with something saved."""
    try:
        with interruptible():
            if run.resume:
                _restore(run, simulation, progress)
            else:
                _prepare(run, simulation, progress)
            _compare(run, simulation, progress, notes)
            with _bar(simulation.history, notes) as show:
                observers: tuple[Observer, ...] = (
                    lambda record: save_checkpoint(simulation, run.folder),
                    lambda record: progress.row(record.row(), len(simulation.history.records)),
                    show,
                )
                while not simulation.done:
                    record = simulation.play()
                    for observe in observers:
                        observe(record)
    except KeyboardInterrupt:
        if not (run.folder / CHECKPOINT).exists():
            raise
        return True
    return False


def _about(run: Run) -> dict[str, Any]:
    return {"kind": "run", "scenario": run.scenario.name, "policy": run.policy, "seed": run.seed}


def _restore(run: Run, simulation: Simulation, progress: Progress) -> None:
    """Take over what the folder holds, under its lock."""
    progress.claim()
    restore_checkpoint(simulation, run.folder)
    history = simulation.history
    progress.start(_about(run), done=len(history.records), total=history.rounds, resume=True)
    _keep_reference(run.folder, run.reference)


def _prepare(run: Run, simulation: Simulation, progress: Progress) -> None:
    """Put everything that a resumed run needs into the folder, and the state before round 1."""
    folder = run.folder
    prepare_folder(folder, overwrite=run.overwrite)
    progress.start(_about(run), done=0, total=simulation.history.rounds, resume=False)
    measurements = None if run.trace is None else run.trace.read_bytes()  # perhaps of this folder
    for path in (JOURNAL, TRACE, DEPLOYMENT):
        (folder / path).unlink(missing_ok=True)
    write_atomically(folder / "scenario.toml", dump_scenario(run.scenario).encode())
    _keep_reference(folder, run.reference)
    if measurements is not None:
        # The folder keeps its own copy, so that a resumed run sees the same network.
        write_atomically(folder / TRACE, measurements)
    if isinstance(simulation.policy, LearnedPolicy):
        simulation.policy.save(folder / POLICY)
    save_checkpoint(simulation, folder)


def _compare(run: Run, simulation: Simulation, progress: Progress, notes: Console) -> None:
    """Compare accuracy with a central model where that is asked for or cheap, in the rounds played before too."""
    from covey.evaluation.central import STORE, Central  # imports much that runs without it do not need

    records, data = simulation.history.records, simulation.data
    if data is None or run.reference is False:
        return

    def show(done: int, groups: int) -> None:
        notes.print(f"central model of group {done} of {groups} is trained", highlight=False)

    before = any(np.isfinite(record.central) for record in records)
    if run.reference or before:
        kept = Store(data_root() / STORE)
        simulation.reference = Central(run.scenario, run.seed, kept=kept, on_group=show)
    else:
        central = Central(run.scenario, run.seed)
        simulation.reference = central if central.cheap(data) else None
    filled = [simulation.referred(record) for record in records]
    if any(new is not old for new, old in zip(filled, records, strict=True)):
        simulation.continue_from(simulation.state, filled)
        save_checkpoint(simulation, run.folder)
        progress.start(_about(run), done=0, total=simulation.history.rounds, resume=True)
        for done, record in enumerate(filled, start=1):
            progress.row(record.row(), done)


@contextmanager
def _bar(history: History, console: Console) -> Iterator[Observer]:
    """A progress bar, as an observer."""
    with progress_bar(console) as bars:
        bar = bars.add_task(history.scenario.name, total=history.rounds, completed=len(history.records), now="")

        def show(record: RoundRecord) -> None:
            now = f"loss {record.loss:.2f}, grouped {record.clustering_accuracy:.0%}, served {record.served}"
            bars.update(bar, advance=1, now=now)

        yield show


def _write_results(folder: Path, history: History, decides: Policy, seconds: float) -> bool:
    """Write tables, pictures and report; whether that was interrupted."""
    extra: dict[str, Any] = {"versions": versions(), "wall_seconds": round(seconds, 3)}
    if isinstance(decides, LearnedPolicy) and decides.exchanged:
        extra["exchanged_bytes_per_decision"] = sum(decides.exchanged) / len(decides.exchanged)
    if history.milliseconds:
        extra["security_milliseconds"] = history.milliseconds
    try:
        write_results(history, folder, extra)
        write_report(history, folder, versions(), write_atomically)
    except KeyboardInterrupt:
        return True
    return False


def _sensible_workers(scenario: Scenario) -> int:
    """All cores for models whose round takes seconds, one process for small ones."""
    if scenario.model.name != "cnn":
        return 1
    return min(cores(), scenario.network.users)
