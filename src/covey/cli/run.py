"""`covey run`: the main job."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from covey.association import Policy
from covey.cli.common import cores, free_folder, interruptible, progress_bar, stored_scenario
from covey.errors import INTERRUPTED, ResumeError
from covey.learners.library import ALGORITHMS, policy_or_train
from covey.learners.policy import LearnedPolicy, load_policy
from covey.learners.storage import POLICY
from covey.names import DEPLOYMENT
from covey.privacy import JOURNAL, Journal
from covey.radio import channel_and_mobility
from covey.report import summary_table, write_report
from covey.scenario import PRESETS, dump_scenario, load_scenario
from covey.scenario.schema import Scenario
from covey.simulation import Simulation
from covey.simulation.progress import Progress
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

TRACE = "trace.csv"


def run(
    scenario: Annotated[
        str, typer.Argument(help=f"A preset ({', '.join(PRESETS)}) or a TOML file. With --resume it may be left out.")
    ] = "quick",
    policy: Annotated[
        str,
        typer.Option(
            help="Who decides which users are served: random, nearest, coverage, greedy, local_search, exact, a learned"
            " one (dpvd, iql, qmix; trained first when there is none), or a policy file of `covey train`."
        ),
    ] = "greedy",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds to play; the scenario's own when not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in the run.")] = 0,
    security: Annotated[
        str | None,
        typer.Option(help="What stations may see: none (every upload) or masked (sums only); short for security.mode."),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(
            help="How tasks are announced: raw, noisy_max (noised and charged) or from_release (from noised uploads);"
            " short for privacy.identity."
        ),
    ] = None,
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
    trace: Annotated[
        Path | None,
        typer.Option(
            help="CSV of measured positions (round,user,x_m,y_m) or gains (round,user,station,gain_db), in place of the"
            " scenario's."
        ),
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

      covey run quick --policy dpvd

      covey run quick --set network.users=8 --set privacy.v_max=6 --rounds 30

      covey run --resume --out results/a
    """
    console = Console(quiet=quiet or as_json)
    notes = Console(stderr=True, quiet=quiet)
    short = {"security.mode": security, "privacy.identity": identity}
    overrides = [*(set_ or ()), *(f"{key}={json.dumps(value)}" for key, value in short.items() if value is not None)]
    if resume:
        folder = _folder_to_resume(out)
        chosen, policy, seed, rounds = _settings_to_resume(folder, overrides, rounds)
    else:
        chosen = load_scenario(scenario, overrides)
        folder = out if out is not None else free_folder(f"{chosen.name}-{_short(policy)}-seed{seed}", CHECKPOINT)
    if resume and trace is not None:
        raise ResumeError("--trace cannot change a run that is being resumed; start a new one without --resume")
    # The folder keeps its own copy, so that a resumed run sees the same network.
    kept = folder / TRACE
    measured = kept if resume and kept.is_file() else trace
    channel, mobility = channel_and_mobility(chosen, seed, "" if measured is None else str(measured))
    decides = named_policy(policy, chosen, folder / POLICY if resume else None, notes)
    with Progress(folder) as progress:
        with Simulation(
            chosen,
            decides,
            rounds=rounds,
            seed=seed,
            channel=channel,
            mobility=mobility,
            workers=workers or _sensible_workers(chosen),
            journal=Journal(folder / JOURNAL),
        ) as simulation:
            history = simulation.history
            history.policy = policy
            started, interrupted = time.perf_counter(), False
            about = {"kind": "run", "scenario": chosen.name, "policy": policy, "seed": seed}
            try:
                with interruptible():
                    if resume:
                        progress.claim()
                        restore_checkpoint(simulation, folder)
                        progress.start(about, done=len(history.records), total=history.rounds, resume=True)
                    else:
                        prepare_folder(folder, overwrite=overwrite)
                        progress.start(about, done=0, total=history.rounds, resume=False)
                        measurements = None if trace is None else trace.read_bytes()  # perhaps of this folder
                        for path in (JOURNAL, TRACE, DEPLOYMENT):
                            (folder / path).unlink(missing_ok=True)
                        write_atomically(folder / "scenario.toml", dump_scenario(chosen).encode())
                        if measurements is not None:
                            write_atomically(kept, measurements)
                        if isinstance(decides, LearnedPolicy):
                            decides.save(folder / POLICY)
                        save_checkpoint(simulation, folder)
                    _play(simulation, folder, progress, notes)
            except KeyboardInterrupt:
                if not (folder / CHECKPOINT).exists():
                    raise
                interrupted = True
            seconds = time.perf_counter() - started
        try:
            extra = {"versions": versions(), "wall_seconds": round(seconds, 3)} | _exchange(decides)
            if history.milliseconds:
                extra["security_milliseconds"] = history.milliseconds
            write_results(history, folder, extra)
            write_report(history, folder, versions(), write_atomically)
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            progress.interrupted()
    console.print(summary_table(history))
    console.print(f"Results in [bold]{folder}[/]: open {folder / 'report.html'}", highlight=False, soft_wrap=True)
    if as_json and not quiet:
        typer.echo((folder / "summary.json").read_text(encoding="utf-8"), nl=False)
    if interrupted:
        command = f"covey run --resume --out {shlex.quote(str(folder))}"
        notes.print(f"Interrupted after round {len(history.records)} of {history.rounds}; continue with: {command}")
        return INTERRUPTED
    return 0


def _play(simulation: Simulation, folder: Path, progress: Progress, console: Console) -> None:
    """Play the remaining rounds with a progress bar, and a checkpoint and a line of progress after each."""
    history = simulation.history
    with progress_bar(console) as bars:
        bar = bars.add_task(history.scenario.name, total=history.rounds, completed=len(history.records), now="")
        while not simulation.done:
            record = simulation.play()
            save_checkpoint(simulation, folder)
            progress.row(record.row(), len(history.records))
            now = f"loss {record.loss:.2f}, grouped {record.clustering_accuracy:.0%}, served {record.served}"
            bars.update(bar, advance=1, now=now)


def named_policy(name: str, scenario: Scenario, stored: Path | None, console: Console) -> str | Policy:
    """What decides: the name of a reference, or a learned policy, read from its file or trained now.

    A resumed run uses the policy that its folder holds, `stored`, whatever has been trained since.
    """
    if name not in ALGORITHMS and not name.endswith(".safetensors"):
        return name
    if stored is not None:
        return load_policy(stored, scenario)
    if name.endswith(".safetensors"):
        return load_policy(Path(name), scenario)
    with progress_bar(console) as progress:
        bar = progress.add_task(f"training {name}", total=None, visible=False, now="")

        def show(row: dict[str, Any], epochs: int) -> None:
            now = f"reward {row['reward']:,.0f}, violating {row['violating_rounds']:.0%}"
            progress.update(bar, total=epochs, completed=row["epoch"], visible=True, now=now)

        return policy_or_train(name, scenario, show)


def _exchange(policy: object) -> dict[str, Any]:
    """What a learned policy's stations sent each other."""
    if not isinstance(policy, LearnedPolicy) or not policy.exchanged:
        return {}
    return {"exchanged_bytes_per_decision": sum(policy.exchanged) / len(policy.exchanged)}


def _short(policy: str) -> str:
    """A policy's name for a folder: of a file, the folder that holds it."""
    return Path(policy).resolve().parent.name if policy.endswith(".safetensors") else policy


def _folder_to_resume(out: Path | None) -> Path:
    if out is None:
        raise ResumeError("--resume needs the folder of the run; add --out FOLDER")
    if (out / DEPLOYMENT).exists():
        raise ResumeError(
            f"'{out}' is a run with real devices; go on with: covey deploy run --resume --out {shlex.quote(str(out))}"
        )
    return out


def _settings_to_resume(folder: Path, overrides: list[str], rounds: int | None) -> tuple[Scenario, str, int, int]:
    """Scenario, policy, seed and rounds of the run in `folder`; more rounds extend it."""
    header: dict[str, Any] = read_checkpoint_header(folder)
    if overrides:
        raise ResumeError(
            "--set, --security and --identity cannot change a run that is being resumed; start a new one without"
            " --resume"
        )
    scenario = stored_scenario(folder)
    if rounds is not None and rounds < header["round"]:
        raise ResumeError(f"the run has already played {header['round']} rounds; --rounds must be at least that")
    return scenario, header["policy"], header["seed"], rounds or header["rounds"]


def _sensible_workers(scenario: Scenario) -> int:
    """All cores for models whose round takes seconds, one process for small ones."""
    if scenario.model.name != "cnn":
        return 1
    return min(cores(), scenario.network.users)
