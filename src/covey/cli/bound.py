"""`covey bound`: the corrected convergence bound against a real run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from covey.cli.common import Overrides, Quiet, ScenarioName, cores, progress_bar
from covey.parts import ALGORITHMS, POLICIES
from covey.scenario import PAPER_START, Scenario, load_scenario

if TYPE_CHECKING:
    from covey.association import Policy


def bound(
    scenario: ScenarioName = "quick",
    policy: Annotated[
        str,
        typer.Option(
            help=f"Who decides: a policy file of `covey train`, a learned one ({', '.join(ALGORITHMS)}),"
            f" {POLICIES.choices}."
        ),
    ] = "greedy",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds to play; the scenario's own when not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in the run.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for bound.json, bound.csv and bound.png.")] = None,
    set_: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    quiet: Quiet = False,
) -> int:
    """Play a run and hold the corrected convergence bound against what it did.

    For every task and round: the loss, the bound on it, and how much of the bound missing users, wrong
    identities, clipping and noise make up. Constants are bounded exactly for softmax models and estimated
    along the path for others; the output says which. Unless the scenario says otherwise, the run has the paper's
    start, because the bound does not cover models that are made anew or offered to other users, and refuses them.
    What it all means is in docs/theory.md.

    Examples:

      covey bound quick

      covey bound quick --policy random --seed 3 --out runs/bound

      covey bound quick --set clustering.rule=oracle --set privacy.noise=off
    """
    from covey.evaluation.bound_runs import play_and_measure, refuse_growth, refuse_other_steps
    from covey.files import csv_bytes, write_atomically
    from covey.report.bound_picture import bound_rows, bound_sentence, bound_tables, draw_bound, remarks
    from covey.report.pictures import png
    from covey.simulation import Simulation
    from covey.simulation.checkpoint import prepare_folder

    chosen = _with_papers_start(scenario, set_ or ())
    refuse_growth(chosen)
    if out is not None:
        prepare_folder(out, overwrite=True)
    with Simulation(
        chosen,
        _policy(policy, chosen),
        rounds=rounds,
        seed=seed,
        workers=min(cores(), chosen.network.users) if chosen.model.name == "cnn" else 1,
    ) as simulation:
        refuse_other_steps(simulation)
        with progress_bar(Console(stderr=True, quiet=quiet)) as progress:
            played = simulation.history.rounds
            playing = progress.add_task("playing", total=played, now="")
            measuring = progress.add_task("measuring", total=played * chosen.network.tasks, now="")
            result = play_and_measure(
                simulation,
                lambda record: progress.update(playing, advance=1, now=f"loss {record.loss:.2f}"),
                lambda: progress.update(measuring, advance=1),
            )
            progress.update(measuring, completed=played * chosen.network.tasks)
    sentence, notes = bound_sentence(result), remarks(result, chosen)
    about = {"scenario": chosen.name, "policy": policy, "seed": seed, "sentence": sentence, "remarks": notes}
    text = json.dumps(about | result.to_dict(), indent=2, allow_nan=False) + "\n"
    if out is not None:
        write_atomically(out / "bound.json", text.encode())
        write_atomically(out / "bound.csv", csv_bytes(bound_rows(result)))
        setting = f"scenario {chosen.name}, policy {policy}, seed {seed}"
        write_atomically(out / "bound.png", png(draw_bound(result, setting)))
    if as_json and not quiet:
        typer.echo(text, nl=False)
        return 0
    console = Console(quiet=quiet)
    console.print(sentence, style="bold", highlight=False)
    for table in bound_tables(result):
        console.print(table)
    for note in notes:
        console.print(f"- {note}", highlight=False)
    if out is not None:
        console.print(f"Results in [bold]{out}[/]", highlight=False, soft_wrap=True)
    return 0


def _with_papers_start(source: str, overrides: Sequence[str]) -> Scenario:
    """The scenario, with the paper's start in place of defaults; what the scenario itself says is kept."""
    given = load_scenario(source, overrides).clustering.model_fields_set
    missing = [pin for pin in PAPER_START if pin.partition("=")[0].partition(".")[2] not in given]
    return load_scenario(source, (*overrides, *missing))


def _policy(name: str, scenario: Scenario) -> str | Policy:
    """A reference policy's name, or the learned policy that is meant."""
    from covey.agents.library import is_learned, learned_policy

    return learned_policy(name, scenario) if is_learned(name) else name
