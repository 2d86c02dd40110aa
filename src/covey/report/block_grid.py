"""The picture of the uplink: who holds which block of which station, now and over all rounds."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from covey.report.palette import FAINT, MUTED, drawing_style, group_words, groups_known, ink_on, sign, task_colours
from covey.report.words import quantity
from covey.simulation import History
from covey.simulation.record import UserRecord

_WIDTH_IN, _FREE = 9.6, "#F4F4F4"
#: Smallest cells, in points, that hold two lines, one user number, one percentage, and one digit.
_FULL_CELL, _NUMBER_CELL, _SHARE_CELL, _DIGIT_CELL = (78.0, 28.0), (22.0, 11.0), (18.0, 10.0), (8.5, 9.5)
_LEGEND_TASKS = 12

Integers = NDArray[np.int64]
Size = tuple[float, float]


def draw_blocks(history: History, round: int = -1) -> Figure:
    """The block grid of one round, above a strip over all rounds.

    `round` counts the played rounds from 0; -1 is the last. The strip shows the task on every
    block where a digit fits, else the share of each station's blocks in use.
    """
    with drawing_style(**{"axes.grid": False}):
        network = history.scenario.network
        if not history.records:
            figure = Figure(figsize=(_WIDTH_IN, 2.0))
            figure.text(0.5, 0.5, "No round was played, so no block was used.", ha="center", va="center", color=MUTED)
            return figure
        colours = task_colours(history)
        width_pt, rows = 72 * (_WIDTH_IN - 1.2), network.stations * network.blocks
        detailed = fits((width_pt / len(history.records), 72 * 0.17), _DIGIT_CELL) and rows <= 40
        grid_in = float(np.clip(0.5 * network.stations, 1.2, 5.5))
        strip_in = 0.17 * max(rows, 8) if detailed else float(np.clip(0.25 * network.stations, 1.4, 4.0))
        layout = ConstrainedLayoutEngine(h_pad=0.1, rect=(0, 0.02, 1, 0.98))
        figure = Figure(figsize=(_WIDTH_IN, grid_in + strip_in + 2.2), layout=layout)
        top, bottom = figure.subplots(2, 1, height_ratios=[grid_in, strip_in])
        _draw_grid(top, history, round, colours, (width_pt / network.blocks, 72 * grid_in / network.stations))
        if detailed:
            _draw_tasks(bottom, history, colours)
        else:
            _draw_shares(bottom, history, (width_pt / len(history.records), 72 * strip_in / network.stations))
        figure.legend(handles=_legend(history, colours), loc="outside upper center", ncols=min(5, network.tasks + 1))
        sign(figure, history)
        return figure


def occupancy(users: UserRecord, stations: int, blocks: int) -> Integers:
    """(B, R) the user on each block of each station in a round, -1 where it is free."""
    holders = np.full((stations, blocks), -1, dtype=np.int64)
    served = np.flatnonzero(users.station >= 0)
    holders[users.station[served], users.block[served]] = served
    return holders


def fits(cell_pt: Size, needed_pt: Size) -> bool:
    """Whether a cell is large enough for what is to be written into it."""
    return cell_pt[0] >= needed_pt[0] and cell_pt[1] >= needed_pt[1]


def _draw_grid(axes: Axes, history: History, round: int, colours: list[str], cell_pt: Size) -> None:
    network, record = history.scenario.network, history.records[round]
    holders = occupancy(record.users, network.stations, network.blocks)
    tasks = _tasks(record.users, holders, len(colours))
    _colour(axes, tasks, colours)
    full = fits(cell_pt, _FULL_CELL)
    if full or fits(cell_pt, _NUMBER_CELL):
        for station, block in np.argwhere(holders >= 0):
            user, task = int(holders[station, block]), int(tasks[station, block])
            rate = quantity(float(record.users.rate_bps[user]), "bit/s")
            named = f"user {user}, task {task}\n{rate}" if task < len(colours) else f"user {user}\n{rate}"
            _write(axes, block, station, named if full else str(user), [*colours, MUTED][task])
    what = "who holds which block, and at which rate" if full else "which user holds which block"
    axes.set_title(f"Round {record.round} of {history.rounds}: {what}", pad=6)
    axes.set(xlabel="block", ylabel="station")
    _separate(axes, network.blocks, network.stations, 2.0 if full else 0.8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(20, integer=True, min_n_ticks=1))


def _draw_tasks(axes: Axes, history: History, colours: list[str]) -> None:
    network = history.scenario.network
    columns = []
    for record in history.records:
        holders = occupancy(record.users, network.stations, network.blocks).ravel()
        columns.append(_tasks(record.users, holders, len(colours)))
    tasks = np.stack(columns, axis=1)
    _colour(axes, tasks, colours)
    for row, column in np.argwhere(tasks >= 0):
        task = int(tasks[row, column])
        _write(axes, column, row, str(task) if task < len(colours) else "?", [*colours, MUTED][task])
    used = 100 * float((tasks >= 0).mean())
    axes.set_title(f"All rounds: the task on every block ({used:.0f} % of the blocks in use)", pad=6)
    axes.set_ylabel(f"station ({network.blocks} blocks each)" if network.blocks > 1 else "station")
    _separate(axes, len(history.records), len(tasks), 0.8)
    edges = np.arange(network.stations + 1) * network.blocks - 0.5
    for edge in edges[1:-1]:
        axes.axhline(edge, color="black", linewidth=1.0)
    axes.set_yticks(edges[:-1] + network.blocks / 2, [str(station) for station in range(network.stations)])
    _label_rounds(axes, history)


def _draw_shares(axes: Axes, history: History, cell_pt: Size) -> None:
    network = history.scenario.network
    held = [(occupancy(r.users, network.stations, network.blocks) >= 0).mean(axis=1) for r in history.records]
    shares = 100.0 * np.stack(held, axis=1)
    scale = ListedColormap(mpl.colormaps["Blues"](np.linspace(0.05, 0.85, 101)))
    image = axes.imshow(shares, cmap=scale, vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    if fits(cell_pt, _SHARE_CELL):
        for station, column in np.ndindex(shares.shape):
            share = float(shares[station, column])
            _write(axes, column, station, f"{share:.0f}", mpl.colors.to_hex(scale(share / 100)))
    else:
        axes.figure.colorbar(image, ax=axes, pad=0.01, aspect=30, label="per cent")
    axes.set_title(f"All rounds: blocks in use at each station, in per cent (mean {shares.mean():.0f} %)", pad=6)
    axes.set_ylabel("station")
    _separate(axes, len(history.records), network.stations, 0.6)
    axes.yaxis.set_major_locator(MaxNLocator(20, integer=True, min_n_ticks=1))
    _label_rounds(axes, history)


def _label_rounds(axes: Axes, history: History) -> None:
    step = max(1, int(np.ceil(len(history.records) / 20)))
    axes.set_xlabel("round")
    axes.set_xticks(range(0, len(history.records), step), [str(record.round) for record in history.records[::step]])


def _separate(axes: Axes, columns: int, rows: int, width: float) -> None:
    """White lines between cells; no ticks, no frame."""
    axes.set_xticks(np.arange(-0.5, columns), minor=True)
    axes.set_yticks(np.arange(-0.5, rows), minor=True)
    axes.grid(which="minor", axis="both", color="white", linewidth=width)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def _tasks(users: UserRecord, holders: Integers, tasks: int) -> Integers:
    """The task on each block: -1 where it is free, `tasks` where nobody knows it, as under masks of real devices."""
    task = users.identity[holders]
    return np.where(holders >= 0, np.where(task < 0, tasks, task), -1)


def _colour(axes: Axes, tasks: Integers, colours: list[str]) -> None:
    table = ListedColormap([_FREE, *colours, MUTED])
    axes.imshow(tasks, cmap=table, vmin=-1.5, vmax=len(colours) + 0.5, aspect="auto", interpolation="nearest")


def _write(axes: Axes, x: int, y: int, text: str, background: str) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=8.0, color=ink_on(background), linespacing=1.25)


def _legend(history: History, colours: list[str]) -> list[Patch]:
    groups, known = group_words(history), groups_known(history)
    handles = [
        Patch(
            facecolor=colours[task],
            edgecolor="black",
            linewidth=0.4,
            label=f"task {task} ({groups[task]})" if known else f"task {task}",
        )
        for task in range(min(len(groups), _LEGEND_TASKS))
    ]
    if len(groups) > _LEGEND_TASKS:
        handles.append(Patch(facecolor="none", label=f"and {len(groups) - _LEGEND_TASKS} more tasks"))
    if any((record.users.identity < 0).any() for record in history.records):
        handles.append(Patch(facecolor=MUTED, label="task not known"))
    return [*handles, Patch(facecolor=_FREE, edgecolor=FAINT, label="free")]
