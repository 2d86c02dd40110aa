"""`covey bench`: measurements side by side with what covey replaces."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from covey.errors import ScenarioError
from covey.files import versions, write_atomically


def _measurements(scale: str) -> dict[str, tuple[str, Callable[[], dict[str, Any]]]]:
    """Name to (what is measured, function), in the order in which they run."""
    import covey.bench.allocation as allocation
    import covey.bench.association as association
    import covey.bench.learning as learning

    small = scale == "quick"
    return {
        "round": (
            "one learning round against a plain PyTorch loop over users and tasks",
            partial(learning.round_vs_plain_loop, repeats=2 if small else 5, samples=60 if small else 400),
        ),
        "clip": (
            "clipped gradient sum against Opacus' ghost clipping",
            partial(learning.clip_vs_opacus, repeats=3 if small else 9),
        ),
        "peak": ("share of the machine's matrix-product peak", learning.matmul_fraction),
        "profile": (
            "where the time of a training round goes",
            partial(learning.round_profile, repeats=3 if small else 9),
        ),
        "growth": (
            "seconds per round as users and tasks grow",
            partial(learning.growth, users=(12, 120) if small else (12, 120, 1200)),
        ),
        "noise": (
            "noise levels against cvxpy with Clarabel",
            partial(allocation.noise_levels_vs_cvxpy, users=100 if small else 1000),
        ),
        "noise_growth": ("noise levels as users grow", allocation.noise_levels_growth),
        "blocks": (
            "block assignment against the exact optimum",
            partial(allocation.assign_blocks_vs_exact, instances=20 if small else 200),
        ),
        "blocks_time": ("block assignment of a large network", allocation.assign_blocks_time),
        "environment": (
            "steps a second of the environment",
            partial(
                association.environment_speed, episodes=2 if small else 8, networks=(1, 64) if small else (1, 64, 512)
            ),
        ),
        "training": (
            "steps a second of training a policy",
            partial(association.training_speed, epochs=1 if small else 10),
        ),
        "decision": (
            "one decision of all stations as users grow",
            partial(association.decision_time, repeats=3 if small else 20),
        ),
        "decision_growth": (
            "one decision and its allocation from 12 to 100,000 users",
            partial(association.decision_growth, users=(12, 100) if small else (12, 100, 1000, 10_000, 100_000)),
        ),
    }


def bench(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run only this measurement; repeatable. All when not given.")
    ] = None,
    scale: Annotated[str, typer.Option(help="full, or quick for a short look with fewer repeats.")] = "full",
    out: Annotated[Path | None, typer.Option(help="Also write the numbers to this JSON file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> int:
    """Measure covey beside a plain PyTorch loop, Opacus and cvxpy, in one run on this machine.

    Read ratios, not seconds: both sides are measured in turn in the same minutes. Peers come with
    `pip install covey\\[bench]` (or `make bench`); a measurement whose peer is missing is named as left
    out, never counted as done.
    """
    if scale not in ("quick", "full"):
        raise ScenarioError(f"--scale is '{scale}'; it is either quick or full")
    known = _measurements(scale)
    unknown = [name for name in only or () if name not in known]
    if unknown:
        raise ScenarioError(f"there is no measurement '{unknown[0]}'; choose from {', '.join(known)}")
    console, status = Console(quiet=as_json), Console(stderr=True)
    results: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name in only or known:
        title, measure = known[name]
        try:
            with status.status(f"{name}: {title} ..."):
                results[name] = measure()
        except ImportError as error:
            left_out[name] = f"{error.name or error} is not installed; install covey[bench] to run it"
            continue
        console.print(_table(f"{name}: {title}", results[name]))
    for name, reason in left_out.items():
        status.print(f"[yellow]Left out:[/] {name}: {escape(reason)}", highlight=False)
    report = {"machine": _machine(), "scale": scale, "results": results, "left_out": left_out}
    text = json.dumps(report, indent=2, default=float) + "\n"
    if out is not None:
        write_atomically(out, text.encode())
    if as_json:
        typer.echo(text, nl=False)
    return 0


def _machine() -> dict[str, Any]:
    peers = {}
    for name in ("opacus", "cvxpy", "clarabel"):
        try:
            peers[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            peers[name] = "not installed"
    return {"cores": os.cpu_count(), "load_average": os.getloadavg()[0], "versions": versions() | peers}


def _table(title: str, numbers: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for key, value in numbers.items():
        table.add_row(key.replace("_", " "), _text(value))
    return table


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_text(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return (
            "[" + ", ".join(_text(item) for item in value) + "]"
            if not value or not isinstance(value[0], dict)
            else "\n".join(_text(item) for item in value)
        )
    return str(value)
