"""`covey evaluate`: a policy against the references on layouts it has not seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from covey.cli.common import CalibrationFile, Overrides, Quiet, Ray, ScenarioName, interruptible, progress_bar
from covey.errors import INTERRUPTED, ScenarioError
from covey.parts import ALGORITHMS, POLICIES
from covey.scenario import load_scenario

if TYPE_CHECKING:
    from covey.association import Policy
    from covey.evaluation import Comparison

#: Finished pieces of a comparison, in its folder.
PIECES = "pieces.jsonl"


def evaluate(
    policy: Annotated[
        str,
        typer.Argument(
            help=f"A policy file of `covey train`, one trained before ({', '.join(ALGORITHMS)}), {POLICIES.choices}."
        ),
    ],
    scenario: ScenarioName = "quick",
    layouts: Annotated[int, typer.Option(min=2, help="Held-out layouts; one run of every policy on each.")] = 20,
    first_seed: Annotated[int, typer.Option(min=0, help="Seed of the first layout; training never uses these.")] = 0,
    learning: Annotated[str, typer.Option(help="surrogate, or real rounds of federated learning.")] = "surrogate",
    against: Annotated[
        list[str] | None,
        typer.Option("--against", help=f"{POLICIES.choices}, or a policy file; repeatable. All quick ones by default."),
    ] = None,
    calibration: CalibrationFile = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for comparison.json, comparison.csv and comparison.png.")
    ] = None,
    set_: Overrides = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Policies and groups of layouts computed at once; 1 starts no processes.")
    ] = 1,
    ray: Ray = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    quiet: Quiet = False,
) -> int:
    """Compare a trained policy, alone and guarded, with the reference policies, layout by layout.

    All policies play the same layouts; differences are paired and have 95 % intervals. Layouts come
    from seeds that training never draws. With --out every finished piece is kept in pieces.jsonl, so that a command
    that was stopped goes on where it was. Pieces answer for the same scenario, layouts, versions and policy only: of a
    trained policy the weights count, of any other its code.

    Examples:

      covey evaluate runs/train-quick-dpvd-seed0/policy.safetensors quick

      covey evaluate dpvd paper --layouts 40 --out runs/judged

      covey evaluate dpvd quick --learning real --against greedy --against coverage

      covey evaluate dpvd paper --learning real --layouts 100 --out runs/judged --ray 10.0.0.1:6379
    """
    from covey.agents.library import policies_named
    from covey.environment import Calibration
    from covey.evaluation import compare, default_policies
    from covey.files import make_folder
    from covey.jobs import Store, open_pool
    from covey.report.comparison import comparison_table

    if learning not in ("surrogate", "real"):
        raise ScenarioError(f"--learning is '{learning}'; it is either surrogate or real")
    chosen = load_scenario(scenario, set_ or ())
    judged = policies_named(policy, chosen)
    policies: dict[str, Policy] = default_policies(chosen) | judged
    if against:
        policies = {name: _reference(name, policies, chosen) for name in against} | judged
    if out is not None:
        make_folder(out)
    notes = Console(stderr=True, quiet=quiet)
    try:
        with interruptible(), ExitStack() as stack:
            comparison = compare(
                chosen,
                policies,
                range(first_seed, first_seed + layouts),
                learning=learning,  # type: ignore[arg-type]
                calibration=None if calibration is None else Calibration.load(calibration),
                on_layout=stack.enter_context(_layouts_bar(notes, layouts * len(policies))),
                pool=stack.enter_context(open_pool(processes, ray)) if processes > 1 or ray is not None else None,
                kept=None if out is None else Store(out / PIECES),
            )
    except KeyboardInterrupt:
        kept = "nothing is kept without --out" if out is None else "what is finished is kept: give the command again"
        notes.print(f"Interrupted; {kept}.", highlight=False)
        return INTERRUPTED
    text = json.dumps(comparison.to_dict(), indent=2) + "\n"
    if out is not None:
        _write(comparison, text, out)
    if as_json and not quiet:
        typer.echo(text, nl=False)
    else:
        console = Console(quiet=quiet)
        console.print(comparison_table(comparison))
        if out is not None:
            console.print(f"Results in [bold]{out}[/]", highlight=False, soft_wrap=True)
    return 0


@contextmanager
def _layouts_bar(console: Console, total: int) -> Iterator[Callable[[str, int], None]]:
    """A progress bar over the layouts of all policies; gives what is told a policy and how many it has finished."""
    with progress_bar(console) as progress:
        bar = progress.add_task("layouts", total=total, now="")
        finished: dict[str, int] = {}

        def show(name: str, done: int) -> None:
            finished[name] = done
            progress.update(bar, completed=sum(finished.values()), now=name)

        yield show


def _write(comparison: Comparison, text: str, out: Path) -> None:
    """comparison.json (its `text`), comparison.png, and comparison.csv with a row per policy and layout."""
    from covey.files import csv_bytes, write_atomically
    from covey.report.comparison import draw_comparison
    from covey.report.pictures import png

    write_atomically(out / "comparison.json", text.encode())
    write_atomically(out / "comparison.png", png(draw_comparison(comparison)))
    rows = (
        {
            "policy": result.policy,
            "layout": seed,
            "reward": float(result.reward[index]),
            "reward_without_penalty": float(result.without_penalty[index]),
            "violators": float(result.violators[index]),
            "served": float(result.served[index]),
            "final_loss": float(result.final_loss[index]),
        }
        for result in comparison.results
        for index, seed in enumerate(comparison.seeds)
    )
    write_atomically(out / "comparison.csv", csv_bytes(rows))


def _reference(name: str, known: dict[str, Policy], scenario: object) -> Policy:
    from covey.agents.policy import load_policy
    from covey.association import get_policy

    if name in known:
        return known[name]
    if name.endswith(".safetensors"):
        return load_policy(Path(name), scenario)  # type: ignore[arg-type]
    return get_policy(name)
