"""`covey train`: learn who serves whom."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from covey.cli.common import CalibrationFile, Overrides, Quiet
from covey.scenario import PRESETS


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
    calibration: CalibrationFile = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder; runs/train-SCENARIO-ALGORITHM-seedS when not given.")
    ] = None,
    set_: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted training in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the training that --out holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead of a table.")] = False,
    quiet: Quiet = False,
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
    # Imported here: help needs none of it.
    from covey.cli.train_loop import new_training, play_training, resumed_training

    if resume:
        wanted = resumed_training(out, set_ or [], learner or [])
    else:
        given = {"algorithm": algorithm, "penalty": penalty, "head": head, "epochs": epochs}
        wanted = new_training(
            scenario, set_ or [], given, learner or [], literal=literal, seed=seed, learning=learning, out=out,
            overwrite=overwrite,
        )  # fmt: skip
    console, notes = Console(quiet=quiet or as_json), Console(stderr=True, quiet=quiet)
    return play_training(wanted, calibration, console, notes, as_json=as_json and not quiet)
