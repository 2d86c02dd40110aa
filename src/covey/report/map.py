"""The picture of the network: cells, stations, users, links."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from covey.identification import matching
from covey.report.labels import LabelPlacer, around, text_size
from covey.report.palette import (
    ALARM,
    FAINT,
    INK,
    MUTED,
    drawing_style,
    group_colours,
    group_markers,
    group_words,
    groups_known,
    sign,
    slot_count,
    slot_of_task,
)
from covey.report.words import count
from covey.simulation import History
from covey.simulation.record import UserRecord

#: Up to this many users are numbered and their links labelled with the block.
LABELLED_USERS = 40
LABELLED_STATIONS = 12
LEGEND_TASKS = 12

_LEGEND_IN, _LARGEST_IN, _SMALLEST_IN, _MARGIN_IN = 2.5, 6.2, 3.2, 0.75
_LABEL_PT = 8.0

Array = NDArray[np.float64]


def draw_map(history: History, round: int = -1) -> Figure:
    """The network in one round: who stands where, who serves whom on which block, who was wrong.

    `round` counts the played rounds from 0; -1 is the last. Before the first round only stations
    and cells are drawn.
    """
    with drawing_style():
        width_m, height_m = history.scenario.network.area_m
        longest, shortest = max(width_m, height_m), min(width_m, height_m)
        inch = max(_LARGEST_IN / longest, min(_SMALLEST_IN / shortest, 2 * _LARGEST_IN / longest))
        size = (width_m * inch, height_m * inch)
        legend = _legend(history)
        figure_size = (size[0] + _MARGIN_IN + 0.2 + _LEGEND_IN, max(size[1] + 1.25, 0.25 * len(legend) + 0.6))
        figure = Figure(figsize=figure_size)
        axes = figure.add_axes(
            (
                _MARGIN_IN / figure_size[0],
                1.0 - (size[1] + 0.65) / figure_size[1],
                size[0] / figure_size[0],
                size[1] / figure_size[1],
            )
        )
        axes.set(xlim=(0, width_m), ylim=(0, height_m), xlabel="x in metres", ylabel="y in metres", aspect="equal")
        axes.grid(False)
        axes.spines[:].set_visible(True)
        placer = LabelPlacer(72 * size[0], 72 * size[1])
        points = 72.0 * inch  # points per metre
        _draw_cells(axes, history)
        if history.records:
            record = history.records[round]
            wrong = _wrong(history, record.users)
            _draw_users(axes, history, record.users, wrong, placer, points)
            title = f"Round {record.round} of {history.rounds}"
            facts = [
                f"{record.served} of {len(history.samples)} users served",
                count(record.violators, "violating user"),
                count(int(wrong.sum()), "wrong identity", "wrong identities")
                if groups_known(history)
                else "right and wrong identities not known",
            ]
        else:
            title, facts = "Before the first round", ["no round was played"]
            _draw_stations(axes, history, placer, points)
        axes.set_title(title, pad=20)
        axes.annotate(
            ", ".join(facts), (0, 1), (0, 7), xycoords="axes fraction", textcoords="offset points", color=MUTED
        )
        left = (_MARGIN_IN + size[0] + 0.15) / figure_size[0]
        top = 1.0 - (0.65 if size[1] > 3.4 else 0.1) / figure_size[1]
        figure.legend(handles=legend, loc="upper left", bbox_to_anchor=(left, top), borderaxespad=0, labelspacing=0.7)
        sign(figure, history)
        return figure


def cells(points: Array, width: float, height: float) -> list[Array]:
    """Nearest-point regions of `points` (B, 2) inside a rectangle, one polygon (n, 2) each.

    Each polygon is the rectangle cut by the bisectors with all other points; coinciding points
    share their region.
    """
    polygons = []
    for own, point in enumerate(points):
        polygon = np.array([[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]])
        for other in np.delete(points, own, axis=0):
            direction = other - point
            if np.any(direction != 0):
                polygon = _cut(polygon, direction, float(direction @ (point + other)) / 2.0)
        polygons.append(polygon)
    return polygons


def _cut(polygon: Array, direction: Array, limit: float) -> Array:
    """The part of a convex polygon where direction . x <= limit."""
    excess = polygon @ direction - limit
    kept: list[Array] = []
    for index in range(len(polygon)):
        following = (index + 1) % len(polygon)
        if excess[index] <= 0:
            kept.append(polygon[index])
        if (excess[index] < 0 < excess[following]) or (excess[following] < 0 < excess[index]):
            share = excess[index] / (excess[index] - excess[following])
            kept.append(polygon[index] + share * (polygon[following] - polygon[index]))
    return np.array(kept).reshape(-1, 2)


def _wrong(history: History, users: UserRecord) -> NDArray[np.bool_]:
    """(U,) whose identity does not belong to their group, under the matching of that round."""
    groups = matching(users.identity, history.groups, history.scenario.network.tasks, history.scenario.groups)
    known = (users.identity >= 0) & (history.groups >= 0)
    return np.asarray(known & (groups[users.identity] != history.groups))


def _draw_cells(axes: Axes, history: History) -> None:
    width_m, height_m = history.scenario.network.area_m
    axes.add_collection(
        PolyCollection(
            cells(history.stations_m, width_m, height_m),
            facecolors=["#FAFAFA", "#F3F5F7"],
            edgecolors=FAINT,
            linewidths=0.9,
            zorder=0,
        ),
        autolim=False,
    )


def _draw_users(
    axes: Axes,
    history: History,
    users: UserRecord,
    wrong: NDArray[np.bool_],
    placer: LabelPlacer,
    points: float,
) -> None:
    amount = len(users.x_m)
    area = float(np.clip(90.0 * (12.0 / amount) ** 0.48, 9.0, 110.0))
    radius = np.sqrt(area) / 2.0
    slots, looks = slot_of_task(history), slot_count(history)
    colours, markers = group_colours(looks), group_markers(looks)
    at = np.column_stack([users.x_m, users.y_m])
    served = users.station >= 0
    links = np.flatnonzero(served)
    ends = np.stack([at[links], history.stations_m[users.station[links]]], axis=1)
    axes.add_collection(
        LineCollection(
            list(ends),
            colors=[colours[slots[task]] if task >= 0 else MUTED for task in users.identity[links]],
            linewidths=1.4 if amount <= LABELLED_USERS else 0.7,
            alpha=0.9 if amount <= 300 else 0.6,
            zorder=1,
        ),
        autolim=False,
    )
    shown = [(task, colours[slot], markers[slot]) for task, slot in enumerate(slots)]
    # Where uploads of real devices are masked, nobody knows their tasks.
    for task, colour, marker in [*shown, (-1, MUTED, "o")]:
        for mask, filled in (((users.identity == task) & ~served, False), ((users.identity == task) & served, True)):
            axes.scatter(
                at[mask, 0],
                at[mask, 1],
                s=area if filled else 0.8 * area,
                marker=marker,
                facecolors=colour if filled else "white",
                edgecolors="black" if filled else colour,
                linewidths=(0.6 if filled else 1.1) if amount <= 300 else (0.3 if filled else 0.6),
                zorder=4 if filled else 3,
                clip_on=False,
            )
    line = 1.3 if amount <= 300 else 0.8
    axes.scatter(
        at[wrong, 0], at[wrong, 1], s=3.4 * area, marker="o", facecolors="none", edgecolors=INK, linewidths=line,
        zorder=5, clip_on=False,
    )  # fmt: skip
    bad = users.violation > 0
    axes.scatter(
        at[bad, 0], at[bad, 1], s=2.4 * area, marker="x", color=ALARM, linewidths=line, zorder=6, clip_on=False
    )
    for user in range(amount):
        side = 2.0 * radius * (1.9 if wrong[user] else 1.1)
        placer.occupy(points * at[user], (side, side), 3.0)
    if amount > LABELLED_USERS:
        _draw_stations(axes, history, placer, points)
        return
    for start, end in points * ends:
        placer.occupy_line(start, end)
    _draw_stations(axes, history, placer, points)
    for user, (start, end) in zip(links.tolist(), points * ends, strict=True):
        text = f"b{users.block[user]}"
        width, height = text_size(text, _LABEL_PT)
        spot = placer.place(*_beside_link(start, end, (width + 3.0, height + 3.0))) / points
        colour = colours[slots[users.identity[user]]] if users.identity[user] >= 0 else MUTED
        axes.text(
            spot[0], spot[1], text, fontsize=_LABEL_PT, ha="center", va="center", zorder=7,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": colour, "linewidth": 0.8},
        )  # fmt: skip
    for user in range(amount):
        size = text_size(str(user), _LABEL_PT)
        gap = radius * (1.9 if wrong[user] else 1.1) + 1.0
        spot = placer.place(around(points * at[user], size, gap), size) / points
        axes.text(spot[0], spot[1], str(user), fontsize=_LABEL_PT, ha="center", va="center", color=INK, zorder=8)


def _beside_link(start: Array, end: Array, size: tuple[float, float]) -> tuple[Array, tuple[float, float], Array]:
    """What to ask the placer for a label on a link, or off it where the link is too short or crowded."""
    along = end - start
    length = float(np.linalg.norm(along))
    across = np.array([-along[1], along[0]]) / length if length > 0 else np.array([1.0, 0.0])
    middle = start + np.array([0.5, 0.4, 0.6, 0.3, 0.7, 0.2])[:, None] * along
    aside = start + 0.5 * along + np.array([13.0, -13.0, 20.0, -20.0])[:, None] * across
    reluctance = np.array([0.0, 0.02, 0.04, 0.1, 0.12, 0.2, 0.8, 0.8, 1.0, 1.0])
    return np.concatenate([middle, aside]), size, reluctance


def _draw_stations(axes: Axes, history: History, placer: LabelPlacer, points: float) -> None:
    stations = history.stations_m
    few = len(stations) <= LABELLED_STATIONS
    roomy = few and len(history.samples) <= LABELLED_USERS
    axes.scatter(
        stations[:, 0], stations[:, 1], s=190 if few else 90, marker="^", color="black", edgecolors="white",
        linewidths=1.2, zorder=2, clip_on=False,
    )  # fmt: skip
    for station in stations:
        placer.occupy(points * station, (15.0, 15.0), 4.0)
    for index, station in enumerate(stations):
        tasks = history.scenario.network.station_tasks[index]
        named = ", ".join(map(str, tasks)) if len(tasks) <= 5 else f"{tasks[0]}, ... {tasks[-1]}"
        text = f"station {index}\ntasks {named}" if roomy else f"S{index}: {named}" if few else f"S{index}"
        size = text_size(text, 1.1 * _LABEL_PT)  # bold is wider
        spot = placer.place(around(points * station, size, 9.0 if few else 6.0), size) / points
        axes.text(
            spot[0], spot[1], text, fontsize=_LABEL_PT, fontweight="bold", ha="center", va="center", zorder=10,
            linespacing=1.1,
            bbox={"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )  # fmt: skip


def _legend(history: History) -> list[Line2D]:
    def mark(label: str, marker: str, face: str, edge: str, size: float = 8.0, width: float = 0.8) -> Line2D:
        return Line2D(
            [], [], linestyle="none", marker=marker, markersize=size, markerfacecolor=face, markeredgecolor=edge,
            markeredgewidth=width, label=label,
        )  # fmt: skip

    slots, looks = slot_of_task(history), slot_count(history)
    colours, markers = group_colours(looks), group_markers(looks)
    known, words = groups_known(history), group_words(history)
    handles = [
        mark(f"task {task}, {words[task]}" if known else f"task {task}", markers[slot], colours[slot], "black")
        for task, slot in list(enumerate(slots))[:LEGEND_TASKS]
    ]
    if len(slots) > LEGEND_TASKS:
        handles.append(Line2D([], [], linestyle="none", label=f"and {len(slots) - LEGEND_TASKS} more tasks"))
    few = len(history.samples) <= LABELLED_USERS
    named = len(history.stations_m) <= LABELLED_STATIONS and not few
    station = "station; S1: 0, 2 runs tasks 0 and 2" if named else "station"
    handles += [
        mark("served user (filled)", "o", MUTED, "black"),
        mark("user not served (hollow)", "o", "white", MUTED, width=1.2),
        *([mark("wrong identity (ring)", "o", "none", INK, 13.0, 1.3)] if known else []),
        mark("violating user (cross)", "x", ALARM, ALARM, 9.0, 1.8),
        mark(station, "^", "black", "white", 12.0),
        Line2D([], [], color=MUTED, linewidth=1.4, label="link; b2 is block 2" if few else "link to the station"),
        Line2D([], [], color=FAINT, linewidth=1.2, label="border of nearest-station cells"),
    ]
    return handles
