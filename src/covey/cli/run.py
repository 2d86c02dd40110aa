"""`covey run`: the main job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from covey.cli.common import Overrides, Quiet
from covey.cli.policy_option import POLICY_CHOICES
from covey.parts import ANNOUNCEMENTS
from covey.scenario import PRESETS


def run(
    scenario: Annotated[
        str | None,
        typer.Argument(
            help=f"A preset ({', '.join(PRESETS)}) or a TOML file. With --resume it may be left out.",
            show_default="quick",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help=f"Who decides which users are served: {POLICY_CHOICES}.", show_default="greedy"),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds to play; the scenario's own when not given.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of everything random in the run.", show_default="0")
    ] = None,
    security: Annotated[
        str | None,
        typer.Option(
            help="What stations may see: none (every upload), masked (sums only) or blind (the same sums in the clear,"
            " to verify masks); short for security.mode."
        ),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(help=f"How tasks are announced: {ANNOUNCEMENTS.choices}; short for privacy.identity."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; runs/SCENARIO-POLICY-seedS when not given.")
    ] = None,
    set_: Overrides = None,
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
    reference: Annotated[
        bool | None,
        typer.Option(
            "--reference/--no-reference",
            help="Whether to train a model centrally and without noise on each true group, to compare accuracy with; by"
            " default where it takes about a second. Convolutional networks take minutes, once for the same data.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that --out holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead of tables.")] = False,
    quiet: Quiet = False,
) -> int:
    """Train K models with users over a simulated network, privately, round by round.

    Writes to the folder: summary.json, rounds.csv, users.csv, scenario.toml, models.safetensors,
    map.png, curves.png, blocks.png, report.html, and a checkpoint after every round. Ctrl-C keeps
    what was finished; --resume continues to exactly the result an uninterrupted run would have had.

    Examples:

      covey run quick

      covey run paper --policy local_search --seed 3 --out results/a

      covey run quick --policy dpvd

      covey run quick --policy my_policies:strongest

      covey run quick --set network.users=8 --set privacy.v_max=6 --rounds 30

      covey run --resume --out results/a
    """
    # Imported here: help needs none of it.
    from covey.cli.run_loop import new_run, play_run, resumed_run

    short = {"security.mode": security, "privacy.identity": identity}
    overrides = [*(set_ or ()), *(f"{key}={json.dumps(value)}" for key, value in short.items() if value is not None)]
    if resume:
        wanted = resumed_run(
            out, overrides, scenario=scenario, policy=policy, seed=seed, rounds=rounds, trace=trace, workers=workers,
            overwrite=overwrite, reference=reference,
        )  # fmt: skip
    else:
        wanted = new_run(
            scenario or "quick", overrides, policy=policy or "greedy", seed=seed or 0, rounds=rounds, out=out,
            trace=trace, workers=workers, overwrite=overwrite, reference=reference,
        )  # fmt: skip
    console, notes = Console(quiet=quiet or as_json), Console(stderr=True, quiet=quiet)
    return play_run(wanted, console, notes, as_json=as_json and not quiet)
