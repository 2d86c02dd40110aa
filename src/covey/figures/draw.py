"""Plot helpers shared by the figures: curves and points that show every seed, in one style."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from covey.evaluation import mean_interval
from covey.report.palette import MARKERS, MUTED, OKABE_ITO

Floats = NDArray[np.float64]

#: Colour, marker and name of each method, the same in all figures.
LOOKS: dict[str, tuple[str, str, str]] = {
    "dpvd": (OKABE_ITO[0], "o", "DPVD"),
    "iql": (OKABE_ITO[4], "s", "IQL"),
    "qmix": (OKABE_ITO[2], "D", "QMIX"),
    "iql_local": (OKABE_ITO[1], "v", "IQL, own rewards"),
    "dpvd_fixed": (OKABE_ITO[3], "P", "DPVD, fixed penalty"),
    "dpvd_guarded": (OKABE_ITO[5], "h", "DPVD, guarded"),
    "random": (MUTED, "v", "random"),
    "nearest": ("#8C6D1F", "<", "nearest"),
    "coverage": (OKABE_ITO[1], "p", "coverage"),
    "greedy": (OKABE_ITO[7], "^", "greedy"),
    "local_search": (OKABE_ITO[3], "8", "local search"),
    "exact": (OKABE_ITO[2], "d", "exact"),
    "loss": (OKABE_ITO[4], "s", "loss only (weight 0)"),
    "gradient_loss_0.2": (OKABE_ITO[0], "o", "gradient and loss, weight 0.2"),
    "gradient_loss_0.2_default": (OKABE_ITO[1], "v", "weight 0.2, covey's default start"),
    "gradient_loss_0.5": (OKABE_ITO[5], "h", "gradient and loss, weight 0.5"),
    "printed_sign_0.2": (OKABE_ITO[3], "P", "printed sign, weight 0.2"),
    "kmeans": (OKABE_ITO[2], "D", "central k-means"),
    "oracle": (OKABE_ITO[7], "*", "true groups"),
}


def look(name: str, index: int = 0) -> tuple[str, str, str]:
    """Colour, marker and name of a method; unknown methods are styled by `index`."""
    plain = (OKABE_ITO[index % len(OKABE_ITO)], MARKERS[index % len(MARKERS)], name.replace("_", " "))
    return LOOKS.get(name, plain)


def curves(
    axes: Axes, x: Sequence[float] | Floats, values: Floats, name: str, *, every: int = 1, log: bool = False
) -> None:
    """Mean over seeds with its 95 % band, and every seed as a faint line; values: (seeds, len(x)).

    log: for logarithmic axes; mean and band are computed on logarithms.
    """
    colour, marker, label = look(name)
    found = [mean_interval(np.log(at) if log else at) for at in values.T]
    middle, low, high = (np.array([getattr(e, part) for e in found]) for part in ("value", "low", "high"))
    if log:
        middle, low, high = np.exp(middle), np.exp(low), np.exp(high)
    axes.plot(x, values.T, color=colour, alpha=0.18, linewidth=0.7)
    axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(
        x, middle, color=colour, marker=marker, markevery=every, markersize=4.5, linewidth=1.6,
        label=f"{label} (n = {len(values)})",
    )  # fmt: skip


def keep_to(axes: Axes, values: Sequence[Floats]) -> None:
    """Limit a logarithmic axis to the values of the seeds; wider bands are clipped."""
    shown = [part[part > 0] for part in values if (part > 0).any()]
    if shown:
        axes.set_ylim(0.93 * min(float(part.min()) for part in shown), 1.07 * max(float(part.max()) for part in shown))


def points(axes: Axes, x: float, values: Floats, name: str, *, label: bool = True, index: int = 0) -> None:
    """Mean with its 95 % interval at `x`, and every seed as a faint dot beside it."""
    colour, marker, words = look(name, index)
    found = mean_interval(values)
    spread = np.linspace(-0.06, 0.06, len(values)) if len(values) > 1 else np.zeros(1)
    axes.plot(x + spread, values, linestyle="", marker=".", markersize=4, color=colour, alpha=0.45)
    axes.errorbar(
        x, found.value, yerr=[[found.value - found.low], [found.high - found.value]], color=colour, marker=marker,
        markersize=6, capsize=3, linewidth=1.4, label=f"{words} (n = {found.n})" if label else None,
    )  # fmt: skip


def legend(axes: Axes, **options: Any) -> None:
    """A legend, if there are labels."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**options)


def legend_above(figure: Figure, axes: Axes) -> None:
    """A legend of one axes above all axes, outside the plots."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels))


def sign(figure: Figure, text: str) -> None:
    """Write the origin of a figure into its lower right corner."""
    note = figure.text(0.995, 0.006, text, ha="right", va="bottom", fontsize=8.0, color=MUTED, parse_math=False)
    note.set_in_layout(False)


def panels(columns: int, *, rows: int = 1, width: float = 9.6, height: float = 3.9) -> tuple[Figure, Any]:
    """A figure with room for its signature, and its axes as an array (rows, columns)."""
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    figure.get_layout_engine().set(rect=(0.0, 0.03, 1.0, 0.97))  # type: ignore[union-attr,call-arg]
    return figure, figure.subplots(rows, columns, squeeze=False)
