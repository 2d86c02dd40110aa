"""Colours, markers and type sizes of all pictures.

A colour stands for a group of users everywhere: a task takes the colour of the group it is matched
with at the end of the run, so that the map and the curves can be read together. Markers differ as
well, so that colour is never the only channel.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from covey.simulation import History

#: Okabe and Ito's eight colours that stay apart under colour blindness, light ones last.
OKABE_ITO: tuple[str, ...] = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000",
)  # fmt: skip

#: Filled markers; triangles up are stations and crosses are violations.
MARKERS: tuple[str, ...] = ("o", "s", "D", "P", "h", "v", "p", "*", "<", ">", "8", "d")

INK = "#222222"
MUTED = "#6B6B6B"
FAINT = "#C9C9C9"
ALARM = "#B3261E"

#: Three fills for stacked bars and their hatches, apart in grey print too.
STACK: tuple[tuple[str, str], ...] = (("#08519C", ""), ("#6BAED6", "////"), ("#BDD7EE", ".."))

#: Matplotlib settings while drawing; no text is below 8 points.
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def drawing_style(**changes: Any) -> AbstractContextManager[None]:
    """A context in which figures are drawn in the style of the reports, with `changes`."""
    settings: Any = {**STYLE, **changes}
    return mpl.rc_context(settings)


def group_colours(groups: int) -> list[str]:
    """One colour per group: Okabe-Ito up to eight groups, then the ordered viridis scale."""
    if groups <= len(OKABE_ITO):
        return list(OKABE_ITO[:groups])
    scale = mpl.colormaps["viridis"]
    return [mpl.colors.to_hex(scale(value)) for value in np.linspace(0.0, 0.95, groups)]


def group_markers(groups: int) -> list[str]:
    """One marker per group; they repeat beyond twelve."""
    return [MARKERS[group % len(MARKERS)] for group in range(groups)]


def contrast(first: str, second: str) -> float:
    """Contrast of two colours by WCAG, from 1 (equal) to 21 (black and white)."""
    lights = sorted(_luminance(colour) + 0.05 for colour in (first, second))
    return lights[1] / lights[0]


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on this colour (WCAG contrast)."""
    return "black" if contrast(colour, "black") >= contrast(colour, "white") else "white"


def readable(colour: str, background: str, least: float = 3.0) -> str:
    """The colour, mixed with as little black or white as gives a contrast of `least` to the background."""
    ink = ink_on(background)
    for share in np.linspace(0.0, 1.0, 41):
        mixed = (1.0 - share) * np.array(mpl.colors.to_rgb(colour)) + share * np.array(mpl.colors.to_rgb(ink))
        found = mpl.colors.to_hex(mixed)
        if contrast(found, background) >= least:
            return found
    return ink


def _luminance(colour: str) -> float:
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in mpl.colors.to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def slot_of_task(history: History) -> NDArray[np.int64]:
    """(K,) which of `slot_count` colours and markers each task has: those of the group that it is matched with in the
    last round, one of its own for a task without a group; its own number before any round, or if groups are unknown."""
    tasks = history.scenario.network.tasks
    if not history.records or not groups_known(history):
        return np.arange(tasks)
    found = history.matched(history.records[-1])
    spare = np.flatnonzero(found < 0)
    found[spare] = history.scenario.groups + np.arange(len(spare))
    return found


def slot_count(history: History) -> int:
    """How many colours and markers a run needs: one for each group, or for each task where there are more of them."""
    return max(history.scenario.network.tasks, history.scenario.groups)


def group_words(history: History) -> list[str]:
    """(K,) what is said of each task's group in the last round, as "group 2" or "no group"; empty if unknown."""
    if not groups_known(history):
        return [""] * history.scenario.network.tasks
    groups = history.scenario.groups
    return [f"group {slot}" if slot < groups else "no group" for slot in slot_of_task(history).tolist()]


def groups_known(history: History) -> bool:
    """Whether tasks can be matched with true groups."""
    last = history.records[-1].users.identity if history.records else history.groups
    return bool(((history.groups >= 0) & (last >= 0)).any())


def task_colours(history: History) -> list[str]:
    """One colour per task: that of its matched group, or one of its own."""
    colours = group_colours(slot_count(history))
    return [colours[slot] for slot in slot_of_task(history)]


def sign(figure: Figure, history: History) -> None:
    """Write the run's origin into the lower right corner, so that a saved picture explains itself."""
    origin = f"scenario {history.scenario.name}, policy {history.policy}, seed {history.seed}"
    short = " ".join(origin.split())
    figure.text(
        0.995, 0.006, short if len(short) <= 90 else f"{short[:87]}...", ha="right", va="bottom", fontsize=8.0,
        color=MUTED, parse_math=False,
    ).set_in_layout(False)  # fmt: skip
