"""`covey calibrate`: fit the surrogate to real runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from covey.cli.common import Overrides, Quiet, ScenarioName, cores, progress_bar
from covey.scenario import load_scenario

if TYPE_CHECKING:
    from covey.environment import Calibration


def calibrate_(
    scenario: ScenarioName = "quick",
    runs: Annotated[int, typer.Option(min=2, help="Real runs to play; every fourth only measures the error.")] = 12,
    first_seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the first run; far from those of evaluations when not given.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Runs played at once; all cores by default.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write the calibration to this JSON file, for --calibration.")
    ] = None,
    set_: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calibration as JSON instead of a table.")] = False,
    quiet: Quiet = False,
) -> int:
    """Fit the surrogate's constants to real runs of a scenario, and report how wrong it is.

    The result is kept under the hash of everything that shapes learning (data, model, clustering,
    training, privacy, number of tasks), so that `train`, `evaluate` and `parallel_env` find it; a
    calibration of other settings is refused.

    Examples:

      covey calibrate quick

      covey calibrate my-site.toml --runs 20 --out my-site.calibration.json
    """
    from covey.environment import calibrate, calibration_path
    from covey.environment.calibration import FIRST_SEED

    chosen = load_scenario(scenario, set_ or ())
    with progress_bar(Console(stderr=True, quiet=quiet)) as progress:
        bar = progress.add_task(chosen.name, total=runs, now="")
        result = calibrate(
            chosen,
            runs=runs,
            first_seed=FIRST_SEED if first_seed is None else first_seed,
            processes=min(processes or cores(), runs),
            on_run=lambda trace: progress.update(bar, advance=1, now=f"seed {trace.seed}"),
        )
    kept = calibration_path(chosen)
    result.save(kept)
    if out is not None:
        result.save(out)
    if as_json and not quiet:
        typer.echo(json.dumps(asdict(result), indent=2))
        return 0
    console = Console(quiet=quiet)
    console.print(_table(result))
    console.print(f"Kept as [bold]{kept}[/]", highlight=False, soft_wrap=True)
    return 0


def _table(calibration: Calibration) -> Table:
    table = Table(title=f"Surrogate of {calibration.scenario}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for key, value in calibration.constants.to_dict().items():
        values = value if isinstance(value, tuple) else (value,)
        table.add_row(key.replace("_", " "), ", ".join(f"{number:.4g}" for number in values))
    table.add_section()
    names = {
        "runs_fitted": "runs fitted",
        "runs_kept_out": "runs kept out, which measure:",
        "one_step_rmse": "error of one round's change of loss (RMSE)",
        "one_step_r2": "explained share of that change (R2)",
        "rollout_rmse": "error of the mean loss over whole runs (RMSE)",
        "rollout_correlation": "correlation of the runs' accumulated loss",
    }
    for key, value in asdict(calibration.error).items():
        table.add_row(names[key], str(value) if isinstance(value, int) else f"{value:.3f}")
    return table
