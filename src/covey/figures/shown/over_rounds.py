"""Shared by the figures over rounds: one row per round of a real run."""

from __future__ import annotations

from collections.abc import Sequence

from covey.figures.kinds import RealRun
from covey.figures.plans import DEFAULT_RULE, RULES, Work, run_under_noise
from covey.figures.rows import Row

#: Noise of the additional runs on digits, as factors of the scenario's variance.
FACTORS = (0.0, 1.0)


def compared_rows(work: Work, rule: str, seed: int, names: Sequence[str]) -> list[Row]:
    """The run of a rule on the scenario of the figure, `part` = "compared", with these columns."""
    return _rows(work, RealRun(work.scale.scenario, RULES[rule], seed), "compared", rule, 1.0, names)


def default_rows(work: Work, seed: int, names: Sequence[str]) -> list[Row]:
    """The run of the same rule with covey's default start, `part` = "default start"."""
    cell = RealRun(work.scale.scenario, RULES[DEFAULT_RULE], seed)
    return _rows(work, cell, "default start", DEFAULT_RULE, 1.0, names)


def noise_rows(work: Work, rule: str, seed: int, names: Sequence[str]) -> list[Row]:
    """Runs of a rule on digits with and without noise, `part` = "noise"."""
    found: list[Row] = []
    for factor in FACTORS:
        found += _rows(work, run_under_noise(rule, factor, seed), "noise", rule, factor, names)
    return found


def _rows(work: Work, cell: RealRun, part: str, rule: str, factor: float, names: Sequence[str]) -> list[Row]:
    if not work.store.has(cell):
        return []
    columns = work.store[cell]["columns"]
    first: Row = {"part": part, "data": cell.loaded.data.name, "factor": factor, "rule": rule, "seed": cell.seed}
    return [
        first | {"round": index + 1} | {name: columns[name][index] for name in names}
        for index in range(len(columns["clustering_accuracy"]))
    ]
