"""What figures under more and more noise share: the finished runs on digits, by rule, noise factor and seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from covey.figures.kinds import RealRun
from covey.figures.plans import Work, run_under_noise
from covey.figures.rows import Row


def finished_runs(work: Work, rules: Iterable[str]) -> Iterator[tuple[Row, RealRun, dict[str, Any]]]:
    """What the row of every finished run begins with, the run, and its columns over the rounds."""
    for rule in rules:
        for factor in work.scale.noise_factors:
            for seed in range(work.seeds):
                cell = run_under_noise(rule, factor, seed)
                if work.store.has(cell):
                    columns = work.store[cell]["columns"]
                    first: Row = {"rule": rule, "factor": factor, "seed": seed, "rounds": len(columns["accuracy"])}
                    yield first, cell, columns
