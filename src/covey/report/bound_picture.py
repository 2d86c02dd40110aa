"""Output of `covey bound`: summary sentence, tables, remarks, CSV rows and plot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich import box
from rich.table import Table

from covey.identification.rule import rule_of
from covey.report.palette import INK, MUTED, OKABE_ITO, STACK, drawing_style
from covey.report.words import count, listed, number, percent
from covey.scenario import Scenario
from covey.theory import CAUSES, RunBound, TaskBound

#: Fill and hatch of each cause, distinguishable in greyscale.
_FILLS = dict(zip(CAUSES, (STACK[0], STACK[1], ("#A6A6A6", "xx"), ("#5A5A5A", ""), STACK[2]), strict=True))
_COLUMNS = 4


def bound_sentence(result: RunBound) -> str:
    """The result of the comparison in one sentence."""
    numbers = result.to_dict()
    if not numbers["steps"]:
        return "Nobody took part in any round, so that no model moved and there is nothing to bound."
    order = sorted(result.shares, key=lambda name: -result.shares[name])
    added = listed([f"{CAUSES[name]} {percent(result.shares[name])}" for name in order if result.shares[name] >= 5e-4])
    times = {name: number(numbers[name]) for name in ("looseness_median", "looseness_max", "accumulated_looseness")}
    return (
        f"The bound held in {numbers['held_steps']} of {count(numbers['steps'], 'step')} in which somebody took part,"
        f" at {times['looseness_median']} times the measured loss (median; at most {times['looseness_max']}) and at"
        f" {times['accumulated_looseness']} times it after {count(result.rounds, 'round')} added up; of what is added"
        f" to it, {added or 'nothing'}."
    )


def remarks(result: RunBound, scenario: Scenario) -> list[str]:
    """Origin of the constants, and caveats."""
    steps = [task.learning_rate * task.curvature.largest for task in result.tasks]
    effective = np.concatenate([task.effective_steps for task in result.tasks])
    numbers = result.to_dict()
    exact = all(task.curvature.kind == "bound" for task in result.tasks)
    lines = [
        "Smoothness L is an exact bound from the features, valid at all weights."
        if exact
        else "Smoothness L is an ESTIMATE at a few points of the path and on some samples (power iteration), not a"
        " bound: nothing that follows from it is guaranteed.",
        "No strong convexity is assumed (mu = 0: there is no penalty on weights), so that the bound says how small"
        " gradients become on average, not how fast the optimum is reached; the loss is at least 0.",
        f"Learning rate x L is {_range(np.array(steps))}; the theorems want at most 1. Clipping shortens steps: what is"
        f" really made is {_range(effective)}"
        + (
            ", within what they allow."
            if effective.max() <= 1.0
            else "; what is beyond 1 counts as an error (overshoot)."
        ),
        f"The bound promised descent in {numbers['promised_steps']} of {count(numbers['steps'], 'step')}; the loss fell"
        f" in {numbers['descent_steps']}.",
        "Knowing only who took part and the clipping norms, as the theorem does, the bound is"
        f" {number(numbers['worst_case_looseness_median'])} times the measured loss (median).",
        f"The bound is an expectation over noise, the run is one draw of it{_excess(numbers)}.",
    ]
    rule = rule_of(scenario)
    if rule is not None and rule.guided:
        lines.append(
            "The run has the paper's start and no offers (clustering.rescue = false): the bound follows a model from"
            " step to step, and an offer would replace it."
        )
    if rule is None or not rule.given:
        lines.append("Every task is judged on the group that it is matched with after the last round.")
    return lines


def _excess(numbers: dict[str, Any]) -> str:
    excess, above = numbers["largest_excess"], numbers["steps"] - numbers["held_steps"]
    if not above:
        return ""
    if excess is None:
        return f"; but in {count(above, 'step')} the loss was above the bound without noise: L was estimated too small"
    return f"; in {count(above, 'step')} the loss was above it, by at most {number(excess)} standard deviations of that"


def bound_tables(result: RunBound) -> list[Table]:
    """Bound against measured loss, and the contribution of each cause; one row per task."""
    first = _table("Bound against measured loss where somebody took part; mean squared gradient")
    for head in ("task", "group", "L", "loss", "held", "ratio", "max", "added up", "grad^2", "bound"):
        first.add_column(head, justify="right", no_wrap=True)
    second = _table("What adds to the bound, in loss, summed over rounds")
    for head in ("task", "group", "missing", "wrong", "clipping", "overshoot", "noise", "most"):
        second.add_column(head, justify="right", no_wrap=True)
    for task, numbers in zip(result.tasks, result.to_dict()["tasks"], strict=True):
        first.add_row(
            str(task.task),
            str(task.group),
            number(task.curvature.largest),
            f"{number(task.measures.loss[0])} -> {number(task.measures.next_loss[-1])}",
            f"{numbers['held_rounds']}/{numbers['played_rounds']}",
            number(numbers["looseness_median"]),
            number(numbers["looseness_max"]),
            number(numbers["accumulated_looseness"]),
            number(task.stationarity.measured),
            number(task.stationarity.bound),
        )
        cells = [number(value) for value in numbers["added"].values()]
        second.add_row(str(task.task), str(task.group), *cells, CAUSES.get(numbers["dominant"], "none"))
    second.add_section()
    second.add_row("all", "", *map(number, result.added.values()), CAUSES.get(result.dominant, "none"), style="bold")
    second.add_row("", "", *map(percent, result.shares.values()), "", style="bold")
    return [first, second]


def bound_rows(result: RunBound) -> Iterable[dict[str, Any]]:
    """One row per task and round, for CSV."""
    for task in result.tasks:
        columns = task.to_dict()["rounds"]
        for index in range(result.rounds):
            row = {"task": task.task, "group": task.group, "round": index + 1}
            yield row | {name: values[index] for name, values in columns.items()}


def draw_bound(result: RunBound, setting: str) -> Figure:
    """Measured loss, one-step and accumulated bound of every task, with contributions to the bound stacked below."""
    rows = -(-len(result.tasks) // _COLUMNS)
    columns = -(-len(result.tasks) // rows)
    with drawing_style():
        figure = Figure(figsize=(max(7.0, 0.6 + 2.9 * columns), 0.8 + 4.4 * rows), layout="constrained")
        grid = figure.subplots(
            2 * rows, columns, squeeze=False, sharex=True, height_ratios=[5, 3] * rows,
        )  # fmt: skip
        for axes in grid.flat:
            axes.set_visible(False)
        top = max(float(np.max([task.accumulated, task.bound.total])) for task in result.tasks)
        high = max(float(task.bound.added.max()) for task in result.tasks)
        for index, task in enumerate(result.tasks):
            row, column = divmod(index, columns)
            upper, lower = grid[2 * row, column], grid[2 * row + 1, column]
            _draw_losses(upper, task, 1.05 * top, labelled=column == 0)
            _draw_causes(lower, task, 1.05 * high if high > 0 else 1.0, labelled=column == 0)
        lines, names = grid[0, 0].get_legend_handles_labels()
        bars, causes = grid[1, 0].get_legend_handles_labels()
        figure.legend(
            lines + bars,
            names + causes,
            loc="outside upper left",
            ncols=8 if columns == _COLUMNS else 4,
            columnspacing=1.4,
        )
        figure.supxlabel("round", fontsize=9)
        figure.text(
            0.995, 0.004, setting, ha="right", va="bottom", fontsize=8.0, color=MUTED, parse_math=False
        ).set_in_layout(False)
        return figure


def _draw_losses(axes: Axes, task: TaskBound, top: float, *, labelled: bool) -> None:
    rounds = np.arange(1, len(task.measures.loss) + 1)
    before = np.concatenate([[0], rounds])
    axes.set_visible(True)
    axes.plot(
        before, np.concatenate([task.measures.loss[:1], task.accumulated]), color=OKABE_ITO[4], linestyle="--",
        linewidth=1.4, label="bounds added up",
    )  # fmt: skip
    axes.plot(
        rounds, task.bound.total, color=OKABE_ITO[1], linestyle="none", marker="_", markersize=9, markeredgewidth=2.0,
        label="bound of one round",
    )  # fmt: skip
    axes.plot(
        before, np.concatenate([task.measures.loss[:1], task.measures.next_loss]), color=INK, marker="o",
        markersize=3.2, linewidth=1.3, label="measured loss",
    )  # fmt: skip
    axes.set_ylim(0.0, top)
    kind = "" if task.curvature.kind == "bound" else " (estimated L)"
    axes.set_title(f"task {task.task}, group {task.group}{kind}")
    if labelled:
        axes.set_ylabel("loss of the group")


def _draw_causes(axes: Axes, task: TaskBound, high: float, *, labelled: bool) -> None:
    rounds = np.arange(1, len(task.measures.loss) + 1)
    bottom = np.zeros(len(rounds))
    axes.set_visible(True)
    for name, value in task.bound.causes.items():
        colour, hatch = _FILLS[name]
        axes.bar(
            rounds, value, bottom=bottom, width=0.8, color=colour, hatch=hatch if len(rounds) <= 60 else "",
            edgecolor="white" if len(rounds) <= 60 else colour, linewidth=0.3, label=CAUSES[name],
        )  # fmt: skip
        bottom = bottom + value
    axes.set_ylim(0.0, high)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    axes.tick_params(labelbottom=True)
    if labelled:
        axes.set_ylabel("added in a round")


def _range(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    low, high = number(float(values.min())), number(float(values.max()))
    return low if low == high else f"{low} to {high}"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
