"""Map of a network in one round: positions, associations and constraint violations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.registry import BackendFilter, backend_registry
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from covey.arrays import FloatArray, IntArray
from covey.environment.reward import Outcome, Penalty, rewards
from covey.environment.surrogate_rounds import Rounds
from covey.errors import ScenarioError
from covey.network import NetworkLimits, Observation

#: Okabe and Ito's colour-blind safe palette; markers differ as well.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
_MARKERS = ("o", "s", "D", "P", "h", "v", "p", "*")
_ALARM, _MUTED = "#B3261E", "#6B6B6B"
#: Largest number of users that are labelled, and of tasks and stations in the legend.
_NUMBERED_USERS, _LISTED = 40, 12
#: Largest side of the map, width of the legend and margins (left, right, bottom, top), all in inches.
_MAP_IN, _LEGEND_IN, _MARGINS_IN = 5.4, 1.7, (0.75, 0.15, 0.5, 0.65)


@dataclass(frozen=True)
class Moment:
    """N networks at the time of decision: the observation, stations (N, B, 2) and users (N, U, 2) in metres."""

    observation: Observation
    stations_m: FloatArray
    users_m: FloatArray


def moment(rounds: Rounds) -> Moment:
    """A snapshot of the current state; taken before a step, it lets `draw` show the round that the step played."""
    return Moment(rounds.observation, *rounds.positions_m)


def draw(
    rounds: Rounds,
    index: int = 0,
    outcome: Outcome | None = None,
    *,
    before: Moment | None = None,
    penalty: Penalty = "progressive",
) -> Figure:
    """The map of network `index`: now, or with the `outcome` of the last round and the moment `before` it.

    Users have the colour and marker of their announced task and are filled when served; without `before` they are
    drawn at their positions after the round. The reward in the title is that of `outcome` under this `penalty`.
    """
    at = before or moment(rounds)
    played = at.observation.round + (0 if outcome is not None and before is None else 1)
    title, facts = f"Round {played} of {rounds.limits.rounds}", "before the stations choose"
    users = rounds.limits.users
    station, wrong = np.full(users, -1), np.zeros(users, dtype=bool)
    if outcome is not None:
        station, wrong = outcome.station[index], outcome.violators[index]
        reward = rewards(outcome, at.observation.samples, rounds.scenario.reward, penalty).team[index]
        title += f", reward {reward:,.1f}"
        facts = f"{int((station >= 0).sum())} of {users} users served, {int(wrong.sum())} broke a rule"
    elif rounds.done and before is None:
        title, facts = f"After round {rounds.limits.rounds}", "the episode is over"
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 9.0, "axes.titlesize": 10.0}):
        figure, axes = _empty_map(rounds)
        identities, stations_m, users_m = at.observation.identities[index], at.stations_m[index], at.users_m[index]
        _draw_links(axes, stations_m, users_m, identities, station, rounds.limits.tasks)
        _draw_users(axes, users_m, identities, station >= 0, wrong, rounds.limits.tasks)
        _draw_stations(axes, stations_m)
        axes.set_title(title, loc="left", weight="bold", pad=18)
        axes.annotate(facts, (0, 1), (0, 5), xycoords="axes fraction", textcoords="offset points", color=_MUTED)
    return figure


def to_rgb(figure: Figure) -> NDArray[np.uint8]:
    """(H, W, 3) pixels of a figure."""
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


class Camera:
    """Renders network 0 of `rounds` while it is played: its start, and every round.

    With `window` the pictures are also shown, which is a `ScenarioError` where there is no display.
    """

    def __init__(self, rounds: Rounds, penalty: Penalty, *, window: bool) -> None:
        self._rounds, self._penalty = rounds, penalty
        self._window = Window() if window else None
        self._before: Moment | None = None
        self._outcome: Outcome | None = None

    def start(self) -> None:
        """Call after the start of an episode."""
        self._before = self._outcome = None
        self._show()

    def aim(self) -> None:
        """Call before a round is played."""
        self._before = moment(self._rounds)

    def shoot(self, outcome: Outcome) -> None:
        """Call after a round was played."""
        self._outcome = outcome
        self._show()

    def pixels(self) -> NDArray[np.uint8]:
        """(H, W, 3): the last round, or the start."""
        before = self._before if self._outcome is not None else None
        return to_rgb(draw(self._rounds, 0, self._outcome, before=before, penalty=self._penalty))

    def close(self) -> None:
        """Close the window; idempotent."""
        if self._window is not None:
            self._window.close()

    def _show(self) -> None:
        if self._window is not None:
            self._window.show(self.pixels())


class Window:
    """A window that shows a sequence of pictures; `ScenarioError` where there is no display."""

    def __init__(self) -> None:
        # Imported here, because pyplot selects its backend on import.
        import matplotlib.pyplot as plt

        self._plt: Any = plt
        self._figure: Any = None
        self._image: Any = None
        backend = plt.get_backend()
        if not _interactive(backend):
            raise ScenarioError(
                f"render_mode 'human' needs a display, but matplotlib found none (its backend is '{backend}'); use"
                " render_mode='rgb_array', or set MPLBACKEND to an interactive backend"
            )

    def show(self, pixels: NDArray[np.uint8]) -> None:
        """Replace the picture by (H, W, 3) pixels."""
        if self._figure is None or not self._plt.fignum_exists(self._figure.number):
            height, width = pixels.shape[:2]
            self._figure = self._plt.figure("covey", figsize=(width / 100, height / 100), dpi=100)
            axes = self._figure.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            self._image = axes.imshow(pixels)
            self._plt.show(block=False)
        self._image.set_data(pixels)
        self._figure.canvas.draw_idle()
        self._figure.canvas.flush_events()

    def close(self) -> None:
        """Close the window; idempotent."""
        if self._figure is not None:
            self._plt.close(self._figure)
            self._figure = None


def _interactive(backend: str) -> bool:
    registry: Any = backend_registry
    return backend.lower() not in {name.lower() for name in registry.list_builtin(BackendFilter.NON_INTERACTIVE)}


def _empty_map(rounds: Rounds) -> tuple[Figure, Axes]:
    """A figure whose axes have the shape of the area, with the legend beside them."""
    width_m, height_m = rounds.scenario.network.area_m
    inch = _MAP_IN / max(width_m, height_m)
    left, right, bottom, top = _MARGINS_IN
    legend = _legend(rounds.limits)
    # The map is at least as high as the legend beside it.
    size = (width_m * inch, max(height_m * inch, 0.21 * len(legend)))
    total = (left + size[0] + right + _LEGEND_IN, bottom + size[1] + top)
    figure = Figure(figsize=total, dpi=100, facecolor="white")
    axes = figure.add_axes((left / total[0], bottom / total[1], size[0] / total[0], size[1] / total[1]))
    axes.set(xlim=(0, width_m), ylim=(0, height_m), aspect="equal", xlabel="x in metres", ylabel="y in metres")
    axes.set_facecolor("#FAFAFA")
    figure.legend(
        handles=legend,
        loc="upper left",
        bbox_to_anchor=((left + size[0] + 0.1) / total[0], 1.0 - top / total[1]),
        borderaxespad=0,
        frameon=False,
    )
    return figure, axes


def _style(tasks: int) -> list[tuple[str, str]]:
    """Colour and marker of every task."""
    colours = list(_COLOURS)
    if tasks > len(colours):
        scale = mpl.colormaps["viridis"]
        colours = [mpl.colors.to_hex(scale(value)) for value in np.linspace(0.0, 0.95, tasks)]
    return [(colours[task], _MARKERS[task % len(_MARKERS)]) for task in range(tasks)]


def _draw_links(
    axes: Axes, stations_m: FloatArray, users_m: FloatArray, identities: IntArray, station: IntArray, tasks: int
) -> None:
    served = np.flatnonzero(station >= 0)
    style = _style(tasks)
    axes.add_collection(
        LineCollection(
            list(np.stack([users_m[served], stations_m[station[served]]], axis=1)),
            colors=[style[task][0] for task in identities[served]],
            linewidths=1.4 if len(users_m) <= _NUMBERED_USERS else 0.8,
            zorder=1,
        ),
        autolim=False,
    )


def _draw_users(
    axes: Axes,
    users_m: FloatArray,
    identities: IntArray,
    served: NDArray[np.bool_],
    wrong: NDArray[np.bool_],
    tasks: int,
) -> None:
    area = float(np.clip(70.0 * (12.0 / len(users_m)) ** 0.5, 10.0, 70.0))
    for task, (colour, marker) in enumerate(_style(tasks)):
        for filled in (False, True):
            here = users_m[(identities == task) & (served == filled)]
            axes.scatter(
                here[:, 0],
                here[:, 1],
                s=area,
                marker=marker,
                facecolors=colour if filled else "white",
                edgecolors="black" if filled else colour,
                linewidths=0.6 if filled else 1.1,
                zorder=4 if filled else 3,
                clip_on=False,
            )
    axes.scatter(
        users_m[wrong, 0], users_m[wrong, 1], s=2.2 * area, marker="x", color=_ALARM, linewidths=1.4, zorder=5,
        clip_on=False,
    )  # fmt: skip
    if len(users_m) <= _NUMBERED_USERS:
        for user, spot in enumerate(users_m):
            axes.annotate(
                str(user), spot, (0.5 * area**0.5 + 3.5, 3.0), textcoords="offset points", fontsize=8.0, zorder=6
            )


def _draw_stations(axes: Axes, stations_m: FloatArray) -> None:
    axes.scatter(
        stations_m[:, 0], stations_m[:, 1], s=240, marker="^", color="black", edgecolors="white", linewidths=1.0,
        zorder=2, clip_on=False,
    )  # fmt: skip
    for b, spot in enumerate(stations_m):
        axes.annotate(
            str(b), spot, (0, -2.5), textcoords="offset points", fontsize=8.0, weight="bold", color="white",
            ha="center", va="center", zorder=2.5,
        )  # fmt: skip


def _legend(limits: NetworkLimits) -> list[Line2D]:
    def mark(label: str, marker: str, face: str, edge: str) -> Line2D:
        return Line2D(
            [], [], linestyle="none", marker=marker, markersize=7.5, markerfacecolor=face, markeredgecolor=edge,
            label=label,
        )  # fmt: skip

    style = _style(limits.tasks)
    handles = [mark(f"task {k}", marker, colour, "black") for k, (colour, marker) in enumerate(style[:_LISTED])]
    handles += [mark("not served", "o", "white", _MUTED), mark("broke a rule", "x", _ALARM, _ALARM)]
    for b, can in enumerate(limits.capable[:_LISTED]):
        tasks = np.flatnonzero(can)
        named = ", ".join(map(str, tasks)) if len(tasks) <= 5 else f"{tasks[0]} ... {tasks[-1]}"
        handles.append(mark(f"bs_{b}: {named}", "^", "black", "black"))
    return handles
