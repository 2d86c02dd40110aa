"""Fig. 6: blocks first and noise second, against block coordinate descent on both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from covey.evaluation import mean_interval
from covey.figures.claims import Claim, judge_equal, judge_side, words
from covey.figures.definitions import change
from covey.figures.draw import panels, points, sign
from covey.figures.kinds import Allocated
from covey.figures.plans import Work, leakage_of
from covey.figures.rows import Row, column, paired, where
from covey.report.palette import FAINT, MUTED, drawing_style
from covey.report.words import count

TITLE = "Sequential allocation against block coordinate descent"
CAPTION = (
    "Both solve (30) for the same selections of two policies, at the scenario's leakage weight and at multiples of it;"
    " times are taken side by side in one process, the fastest of several repeats. Small dots are seeds, large markers"
    " their mean with its 95 % interval, grey bars the range of all rounds."
)
FACTORS = (1.0, 5.0, 50.0)
SHOWN = ("greedy", "random")
COLUMNS = (
    "sequential_objective", "descent_objective", "sequential_served", "descent_served", "sequential_passes",
    "descent_passes", "sequential_ms", "descent_ms", "selected",
)  # fmt: skip
#: Relative tolerance within which objectives are equal.
ROUNDING = 1e-9

Floats = NDArray[np.float64]
#: One value per round, and the average over rounds (mean or median).
_Measure = Callable[[Sequence[Row]], Floats]
_Middle = Callable[[Floats], np.floating]


def rows(work: Work) -> list[Row]:
    """One row per leakage factor, policy, seed and round."""
    found: list[Row] = []
    scenario = work.scale.scenario
    for factor in FACTORS:
        for policy in SHOWN:
            for seed in range(work.seeds):
                cell = Allocated(scenario, leakage_of(scenario, factor), seed, policy=policy)
                if not work.store.has(cell):
                    continue
                columns = work.store[cell]["columns"]
                for index in range(len(columns["selected"])):
                    row: Row = {"factor": factor, "policy": policy, "seed": seed, "round": index + 1}
                    found.append(row | {name: columns[name][index] for name in COLUMNS})
    return found


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Objective, time and passes of both methods over the leakage weight."""
    with drawing_style():
        figure, axes = panels(3, width=10.4, height=4.1)
        objective, cost, passes = axes[0]
        _draw_panel(objective, data, _excess, np.mean)
        _draw_panel(cost, data, _slowdown, np.median)
        _draw_panel(passes, data, lambda rows: column(rows, "descent_passes"), np.mean)
        objective.axhline(0.0, color=MUTED, linewidth=1.0, linestyle="--", zorder=1)
        cost.axhline(1.0, color=MUTED, linewidth=1.0, linestyle="--", zorder=1)
        passes.axhline(1.0, color=MUTED, linewidth=1.0, linestyle="--", zorder=1)
        objective.set(title="Objective (30)", ylabel="sequential above descent (%)")
        cost.set(title="Time", ylabel="descent / sequential (times)")
        passes.set(title="Passes of descent", ylabel="passes (sequential: 1)")
        for axis in (cost, passes):
            axis.set_ylim(0.0, 1.15 * max(axis.get_ylim()[1], 2.0))
        handles, labels = objective.get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside upper right", ncols=2, title="who selects")
        figure.suptitle(TITLE, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
        sign(figure, setting)
        return figure


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """The same result at the scenario's leakage weight, at lower cost."""
    own = where(data, factor=1.0)
    known = [factor for factor in FACTORS if where(data, factor=factor)]
    equal = change(*paired(_by_seed(own, "sequential_objective"), _by_seed(own, "descent_objective")))
    saved = np.array([100.0 * (1.0 / np.median(_slowdown(part)) - 1.0) for part in _seeds(own)])
    cheaper = mean_interval(saved) if len(saved) else None
    return [
        Claim(
            figure="6",
            claim="Blocks first and noise second end with the same result as block coordinate descent.",
            paper="equal",
            quantity="objective (30) of the sequential method minus that of descent, mean over rounds at the scenario's"
            " leakage weight, paired by seed",
            unit="%",
            estimate=equal,
            verdict=judge_equal(equal),
            reason=" ".join(_where_they_differ(data, factor) for factor in known) or "There are no rounds.",
            setting=setting,
        ),
        Claim(
            figure="6",
            claim="The sequential method costs less time.",
            paper="lower",
            quantity="time of the sequential method against descent, median over rounds at the scenario's leakage"
            " weight",
            unit="%",
            estimate=cheaper,
            verdict=judge_side(cheaper, -1),
            reason=" ".join(_cost(data, factor) for factor in known) or "There are no rounds.",
            setting=setting,
        ),
    ]  # fmt: skip


def _draw_panel(axis: Axes, data: Sequence[Row], measure: _Measure, middle: _Middle) -> None:
    """Per factor and policy: the average of every seed, their mean, and the range over all rounds."""
    for number, policy in enumerate(SHOWN):
        labelled = False
        for place, factor in enumerate(FACTORS):
            part = where(data, factor=factor, policy=policy)
            if not part:
                continue
            x = place + 0.3 * (number - 0.5)
            every = measure(part)
            axis.vlines(x, every.min(), every.max(), color=FAINT, linewidth=5.0, zorder=1)
            values = np.array([float(middle(measure(one))) for one in _seeds(part)])
            points(axis, x, values, policy, label=not labelled, index=number)
            labelled = True
    axis.set_xticks(range(len(FACTORS)), [f"{factor:g}" for factor in FACTORS])
    axis.set(xlabel="leakage weight (times the scenario's)", xlim=(-0.5, len(FACTORS) - 0.5))


def _excess(part: Sequence[Row]) -> Floats:
    """(n,) objective of the sequential method above that of descent in every round, in per cent.

    Rounds without selected users, in which both objectives are 0, give 0.
    """
    theirs = column(part, "descent_objective")
    above = column(part, "sequential_objective") - theirs
    return 100.0 * np.divide(above, np.abs(theirs), out=np.zeros_like(above), where=theirs != 0.0)


def _slowdown(part: Sequence[Row]) -> Floats:
    """(n,) time of descent relative to the sequential method in every round."""
    return column(part, "descent_ms") / column(part, "sequential_ms")


def _seeds(part: Sequence[Row]) -> list[list[Row]]:
    """The rows of every seed."""
    return [where(part, seed=seed) for seed in sorted({row["seed"] for row in part})]


def _by_seed(part: Sequence[Row], name: str) -> dict[int, float]:
    """The mean of a column for every seed."""
    return {int(one[0]["seed"]): float(column(one, name).mean()) for one in _seeds(part)}


def _weight(factor: float) -> str:
    return "At the scenario's own weight" if factor == 1.0 else f"At {factor:g} times the weight"


def _where_they_differ(data: Sequence[Row], factor: float) -> str:
    """In how many rounds, by how much, and whether other users are served."""
    part = where(data, factor=factor)
    differ = np.abs(_excess(part)) > 100.0 * ROUNDING
    found = change(*paired(_by_seed(part, "sequential_objective"), _by_seed(part, "descent_objective")))
    amount = words(found, "%").rsplit(", n = ", 1)[0]
    ours, theirs = column(part, "sequential_served"), column(part, "descent_served")
    weight = _weight(factor)
    if not differ.any():
        return f"{weight} the objective is the same in all {count(len(part), 'round')}."
    return (
        f"{weight} it differs in {differ.sum()} of {count(len(part), 'round')} ({amount} in the mean):"
        f" descent serves {theirs.mean():.1f} users in a round, the sequential method {ours.mean():.1f}, and in"
        f" {int((theirs < ours)[differ].sum())} of these rounds descent serves fewer."
    )


def _cost(data: Sequence[Row], factor: float) -> str:
    part = where(data, factor=factor)
    ratios = [float(np.median(_slowdown(one))) for one in _seeds(part)]
    return (
        f"{_weight(factor)} descent takes {np.mean(ratios):.2f} times as long, with"
        f" {column(part, 'descent_passes').mean():.2f} passes instead of"
        f" {column(part, 'sequential_passes').mean():.2f}."
    )
