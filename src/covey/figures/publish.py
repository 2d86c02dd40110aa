"""Publish finished cells: a CSV and a PNG per figure, claims.json, and about.json with the provenance."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from matplotlib.figure import Figure

from covey.environment import calibration_for
from covey.errors import OutputError
from covey.figures.cells import Cell, cells_in, scenario_of
from covey.figures.claims import Claim
from covey.figures.plans import FIGURES, METHODS, Work, plan_of
from covey.figures.rows import Row, read_rows, write_rows
from covey.figures.scales import SCALES, Scale
from covey.files import write_atomically
from covey.jobs import made_with
from covey.report.pictures import png
from covey.scenario import PAPER_START

CLAIMS, ABOUT = "claims.json", "about.json"
#: Display name of the data set of each scenario.
DATA_NAMES = {"quick": "digits", "paper": "CIFAR-10", "femnist": "FEMNIST", "paper_femnist": "FEMNIST"}
#: Figures that use digits at every scale, because they need many runs.
ON_DIGITS = ("privacy", "noise", "bound")


class Shown(Protocol):
    """A module of `covey.figures.shown`."""

    TITLE: str
    CAPTION: str

    def rows(self, work: Work) -> list[Row]:
        """Rows of the CSV file, from finished cells."""
        ...

    def draw(self, data: Sequence[Row], setting: str) -> Figure:
        """The plot, from the rows."""
        ...

    def claims(self, data: Sequence[Row], setting: str) -> list[Claim]:
        """Claims with verdicts, from the rows."""
        ...


def shown(name: str) -> Shown:
    """The module that shows a figure."""
    module: Shown = import_module(f"covey.figures.shown.figure_{name}")
    return module


def setting_of(name: str, scale: Scale) -> str:
    """Data and scenario of a figure, for its signature."""
    scenario = "quick" if name in ON_DIGITS else scale.second if name == "10" else scale.scenario
    return f"{DATA_NAMES[scenario]} (scenario {scenario})"


def file_of(folder: Path, name: str, ending: str) -> Path:
    """The file of a figure."""
    return folder / f"figure_{name}.{ending}"


def publish(names: Sequence[str], work: Work, *, seconds: float, command: str) -> list[Claim]:
    """Write the files of these figures from finished cells; returns the claims of all figures in the folder.

    Plots and claims are derived from the CSV file as written, so that they can be reproduced from it. If a figure
    has a CSV file but no finished cells, as in a folder of published results, its plot is redrawn from that file.
    """
    folder, scale = work.store.folder, work.scale
    computed = [name for name in names if _finished(name, work) or not file_of(folder, name, "csv").is_file()]
    for name in names:
        if name in computed:
            write_rows(file_of(folder, name, "csv"), shown(name).rows(work))
        data = read_rows(file_of(folder, name, "csv"))
        write_atomically(file_of(folder, name, "png"), png(shown(name).draw(data, setting_of(name, scale))))
    found = claims_of(folder, scale)
    text = json.dumps({"scale": scale.name, "claims": [claim.to_dict() for claim in found]}, indent=1) + "\n"
    write_atomically(folder / CLAIMS, text.encode())
    if computed:
        _write_about(computed, work, seconds, command)
    return found


def _finished(name: str, work: Work) -> list[Cell]:
    """The finished cells of a figure."""
    return [cell for cell in plan_of([name], work.scale, work.seeds)(work.store) if work.store.has(cell)]


def made_elsewhere(names: Sequence[str], work: Work) -> int:
    """Number of finished cells of these figures computed with other versions of covey or its dependencies."""
    found = {cell.key: cell for name in names for cell in _finished(name, work)}
    return sum(work.store.other_version(cell) is not None for cell in found.values())


def claims_of(folder: Path, scale: Scale) -> list[Claim]:
    """The claims of all figures whose CSV file is in the folder."""
    there = [name for name in FIGURES if file_of(folder, name, "csv").is_file()]
    return [
        claim
        for name in there
        for claim in shown(name).claims(read_rows(file_of(folder, name, "csv")), setting_of(name, scale))
    ]


def read_about(folder: Path) -> dict[str, Any]:
    """The provenance of the figures in a folder; empty if there are none."""
    path = folder / ABOUT
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError:
        raise OutputError(f"'{path}' is damaged; delete it, and it is written again") from None
    return about


def check_folder(folder: Path, scale: Scale) -> None:
    """Raise `OutputError` if the folder holds figures of another scale."""
    held = read_about(folder).get("scale", scale.name)
    if held != scale.name:
        raise OutputError(
            f"'{folder}' holds figures of scale {held}; choose another folder with --out for scale {scale.name}"
        )


def _write_about(names: Sequence[str], work: Work, seconds: float, command: str) -> None:
    """about.json: command, seeds, cells, times, versions, tuning and machine; earlier figures keep their entries."""
    folder, scale = work.store.folder, work.scale
    about = read_about(folder)
    figures = about.get("figures", {})
    for name in names:
        cells = _finished(name, work)
        records = [record for cell in cells if (record := work.store.find(cell)) is not None]
        figures[name] = {
            "command": command,
            "seeds": work.seeds,
            "cells": len(cells),
            "missing_cells": len(plan_of([name], scale, work.seeds)(work.store)) - len(cells),
            "processor_seconds": round(sum(record.seconds or 0.0 for record in records), 1),
            "taken_over": dict(Counter(record.origin for record in records if record.origin)),
            "made_with": made_with(list({record.key: record for record in records}.values())),
        }
    values = {
        "scale": scale.name,
        "figures": {name: figures[name] for name in FIGURES if name in figures},
        "last_wall_seconds": round(seconds, 1),
        "tuning": _tuning(work),
        "surrogates": {
            scenario: asdict(calibration_for(scenario_of(scenario, PAPER_START)).error)
            for scenario in dict.fromkeys((scale.scenario, scale.second, "quick"))
        },
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()},
    }
    write_atomically(folder / ABOUT, (json.dumps(values, indent=1) + "\n").encode())


def _tuning(work: Work) -> dict[str, Any]:
    """Tuning trials of every method, and the choice; the budget is the same for all."""
    found: dict[str, Any] = {}
    scale = work.scale
    for scenario in dict.fromkeys((scale.scenario, scale.second)):
        for method in METHODS:
            trials = work.trials(scenario, method)
            scores = {
                f"{rate:g}": work.store[cell]["validation"]["alone"]
                for rate, cell in trials.items()
                if work.store.has(cell)
            }
            if scores:
                found.setdefault(scenario, {})[method] = {"scores": scores, "chosen": work.rate(scenario, method)}
    return {
        "rates": list(scale.rates), "epochs": scale.tuning_epochs, "seed": scale.tuning_seed, "methods": found
    }  # fmt: skip


def _processor() -> str:
    """The CPU model, if the system reports it."""
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def work_in(folder: Path, scale: str, seeds: int | None, *, any_version: bool = False) -> Work:
    """The experiments of a folder at a scale; with `any_version`, including results of other versions."""
    chosen = SCALES[scale]
    return Work(chosen, chosen.seeds if seeds is None else seeds, cells_in(folder, any_version=any_version))
