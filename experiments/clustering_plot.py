"""accuracy.png and accuracy.csv of the study of groups: clustering accuracy and perfect runs by round."""

from __future__ import annotations

import numpy as np
from clustering_cells import TITLES, Found, Runs
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from covey.evaluation import mean_interval
from covey.report.palette import INK, OKABE_ITO, drawing_style

LINES = {
    "new": "rescue",
    "release": "release start, rescue",
    "paper_start": "paper's start",
}
COLUMNS = 4


def rows_of(found: Found) -> str:
    """The table of all curves."""
    lines = ["data,variant,policy,round,n,mean,low,high,perfect"]
    for (data, variant, policy), runs in found.items():
        curves, perfect = runs.values("clustering_accuracy"), runs.perfect.mean(axis=0)
        for index in range(curves.shape[1]):
            value = mean_interval(curves[:, index])
            numbers = (value.value, value.low, value.high, float(perfect[index]))
            lines.append(f"{data},{variant},{policy},{index + 1},{len(runs)}," + ",".join(map(repr, numbers)))
    return "\n".join(lines) + "\n"


def draw(found: Found) -> Figure:
    """One panel per data set, policy `greedy`: mean clustering accuracy with its interval, perfect runs."""
    datasets = [data for data in TITLES if (data, "new", "greedy") in found]
    rows = -(-len(datasets) // COLUMNS)
    with drawing_style():
        figure = Figure(figsize=(3.1 * COLUMNS, 2.5 * rows + 0.6), layout="constrained")
        grid = figure.subplots(rows, COLUMNS, sharey=True, squeeze=False)
        for axes in grid.ravel()[len(datasets) :]:
            axes.set_axis_off()
        for axes, data in zip(grid.ravel(), datasets, strict=False):
            for colour, variant in zip(OKABE_ITO, LINES, strict=False):
                if (data, variant, "greedy") in found:
                    _draw_runs(axes, found[data, variant, "greedy"], colour)
            title = TITLES[data].replace("`", "")
            axes.set_title(f"{title} (n = {len(found[data, 'new', 'greedy'])})", fontsize=8.5)
            axes.set(ylim=(-0.02, 1.04), xlabel="round")
        for axes in grid[:, 0]:
            axes.set_ylabel("share")
        handles = [
            *(Line2D([], [], color=colour, label=LINES[name]) for colour, name in zip(OKABE_ITO, LINES, strict=False)),
            Line2D([], [], color=INK, label="users on the right model"),
            Line2D([], [], color=INK, linestyle=":", label="runs with all users right"),
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), fontsize=8.5)
        return figure


def _draw_runs(axes: Axes, runs: Runs, colour: str) -> None:
    curves = runs.values("clustering_accuracy")
    rounds = np.arange(1, curves.shape[1] + 1)
    estimates = [mean_interval(column) for column in curves.T]
    low, high = (np.clip([getattr(one, side) for one in estimates], 0.0, 1.0) for side in ("low", "high"))
    axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(rounds, curves.mean(axis=0), color=colour, linewidth=1.6)
    axes.plot(rounds, runs.perfect.mean(axis=0), color=colour, linewidth=1.2, linestyle=":")
