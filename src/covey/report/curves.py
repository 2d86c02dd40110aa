"""Plots over rounds: losses, accuracies, identities, privacy, service, delay and energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from covey.privacy import epsilon
from covey.privacy.accounting import Method
from covey.report.palette import (
    ALARM,
    FAINT,
    INK,
    MUTED,
    OKABE_ITO,
    STACK,
    drawing_style,
    group_colours,
    group_markers,
    sign,
)
from covey.report.words import number, prefix_of
from covey.simulation import History

Panel = Callable[[Axes, History], None]
Array = NDArray[np.float64]

#: Above this many groups, lines are thin and share one legend entry.
LEGEND_GROUPS = 8
#: Above this many distinct totals, epsilon is interpolated, within 0.01 % of the exact value.
EXACT_TOTALS = 40

_PANEL_IN, _FOOT_IN = (4.8, 3.1), 0.2
_LEGEND_COLUMNS, _LEGEND_ROW_PT = 5, 14.0


def draw_curves(history: History) -> Figure:
    """All panels over the rounds of a run, as small multiples in two columns."""
    with drawing_style():
        if not history.records:
            return _nothing()
        rows = (len(PANELS) + 1) // 2
        figure = Figure(figsize=(2 * _PANEL_IN[0], rows * _PANEL_IN[1] + _FOOT_IN))
        for index, panel in enumerate(PANELS.values()):
            row, column = divmod(index, 2)
            corner = (column * _PANEL_IN[0], (rows - 1 - row) * _PANEL_IN[1] + _FOOT_IN)
            panel(_axes(figure, corner), history)
        sign(figure, history)
        return figure


def draw_panel(history: History, name: str) -> Figure:
    """One panel of `draw_curves` on its own; `name` is a key of `PANELS`."""
    with drawing_style():
        if not history.records:
            return _nothing()
        figure = Figure(figsize=_PANEL_IN)
        PANELS[name](_axes(figure, (0.0, 0.0)), history)
        return figure


def epsilons(rho: Array, delta: float, method: Method = "exact") -> Array:
    """Epsilon at `delta` for each total in `rho`, same shape; infinity propagates."""
    result = np.where(np.isinf(rho), np.inf, 0.0)
    finite = np.isfinite(rho) & (rho > 0)
    totals, back = np.unique(rho[finite], return_inverse=True)
    if len(totals) <= EXACT_TOTALS:
        values = np.array([_epsilon(float(total), delta, method) for total in totals])
    else:
        grid = np.geomspace(totals[0], totals[-1], EXACT_TOTALS)
        found = np.array([_epsilon(float(total), delta, method) for total in grid])
        values = np.exp(CubicSpline(np.log(grid), np.log(found))(np.log(totals)))
    result[finite] = values[back] if len(totals) else values
    return result


@lru_cache(maxsize=4 * EXACT_TOTALS)
def _epsilon(rho: float, delta: float, method: Method) -> float:
    """Cached: a conversion takes milliseconds, and a report repeats the same ones."""
    return epsilon(rho, delta, method)


def _axes(figure: Figure, corner: tuple[float, float]) -> Axes:
    """Axes with fixed margins inside a panel at `corner`, in inches; constrained layout would take seconds."""
    width, height = figure.get_size_inches()
    left, bottom, right, top = 0.68, 0.5, 0.1, 0.33 + 2 * _LEGEND_ROW_PT / 72
    return figure.add_axes(
        (
            (corner[0] + left) / width,
            (corner[1] + bottom) / height,
            (_PANEL_IN[0] - left - right) / width,
            (_PANEL_IN[1] - bottom - top) / height,
        )
    )


def _nothing() -> Figure:
    figure = Figure(figsize=(9.6, 2.0))
    figure.text(0.5, 0.5, "No round was played, so there is nothing to draw.", ha="center", va="center", color=MUTED)
    return figure


def _rounds(history: History) -> NDArray[np.int64]:
    return np.asarray(history.column("round"), dtype=np.int64)


def _finish(axes: Axes, title: str, first: int, last: int, *, share: bool = False, legend: bool = True) -> None:
    axes.set_xlabel("round")
    pad = max(0.6, 0.02 * (last - first))
    axes.set_xlim(first - pad, last + pad)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    if share:
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    else:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    # Legend between title and axes, so that it covers no data.
    entries = len(axes.get_legend_handles_labels()[0]) if legend else 0
    rows = -(-entries // _LEGEND_COLUMNS)
    axes.set_title(title, pad=6.0 + _LEGEND_ROW_PT * rows)
    if entries:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.15, borderpad=0.1, ncols=_LEGEND_COLUMNS,
            handlelength=1.6, handletextpad=0.5, columnspacing=0.9, labelspacing=0.25,
        )  # fmt: skip


def _group_lines(axes: Axes, rounds: NDArray[np.int64], values: Array) -> None:
    """One line per group; `values` is (T + 1, G) with the value before the first round on top."""
    groups = values.shape[1]
    colours, markers = group_colours(groups), group_markers(groups)
    few = groups <= LEGEND_GROUPS
    for group in range(groups):
        axes.plot(
            np.concatenate([[0], rounds]),
            values[:, group],
            color=colours[group],
            marker=markers[group] if few else None,
            markevery=max(1, (len(rounds) + 1) // 12),
            markersize=4.5,
            markeredgecolor="black",
            markeredgewidth=0.4,
            linewidth=1.5 if few else 0.9,
            label=f"group {group}" if few else (f"each of {groups} groups" if group == groups // 2 else None),
        )


def _known(axes: Axes, title: str, values: Array, rounds: NDArray[np.int64]) -> bool:
    """Whether there is anything to draw; says so in the panel where there is not, as when devices tell nothing."""
    if np.isfinite(values.astype(float)).any():
        return True
    axes.text(0.5, 0.5, "not known", transform=axes.transAxes, ha="center", va="center", color=MUTED, fontsize=11)
    axes.set_yticks([])
    _finish(axes, title, 1, int(rounds[-1]), legend=False)
    return False


def _loss(axes: Axes, history: History) -> None:
    rounds = _rounds(history)
    if not _known(axes, "Training loss", history.column("loss"), rounds):
        return
    start = np.array(history.start["group_loss"], dtype=float)
    if len(start):
        _group_lines(axes, rounds, np.vstack([start, history.column("group_loss")]))
    else:
        overall = np.concatenate([[history.start["loss"]], history.column("loss")])
        axes.plot(np.concatenate([[0], rounds]), overall, color=INK, linestyle="--", linewidth=2.0, label="all")
    axes.set_ylabel("mean loss per sample")
    _finish(axes, "Training loss by true group" if len(start) else "Training loss", 0, int(rounds[-1]))


def _accuracy(axes: Axes, history: History) -> None:
    rounds = _rounds(history)
    if not _known(axes, "Test accuracy", history.column("accuracy"), rounds):
        return
    start = np.array(history.start["group_accuracy"], dtype=float)
    if len(start):
        _group_lines(axes, rounds, np.vstack([start, history.column("group_accuracy")]))
    overall = np.concatenate([[history.start["accuracy"]], history.column("accuracy")])
    axes.plot(np.concatenate([[0], rounds]), overall, color=INK, linestyle="--", linewidth=2.0, label="all")
    _reference_lines(axes, history, rounds)
    _personal_line(axes, history, rounds)
    _finish(axes, "Test accuracy by true group" if len(start) else "Test accuracy", 0, int(rounds[-1]), share=True)


def _reference_lines(axes: Axes, history: History, rounds: NDArray[np.int64]) -> None:
    """What accuracy is read against, over all users: guessing, and the central model where it is known."""
    for name, label, style, colour in (("majority", "guessing", ":", ALARM), ("central", "central", "-.", MUTED)):
        values = history.column(name).astype(float)
        if np.isfinite(values).any():
            # From round 0 on, where the curves begin; steps, because data may change from round to round.
            axes.step(
                np.concatenate([[0], rounds]), np.concatenate([values[:1], values]), where="post", color=colour,
                linestyle=style, linewidth=1.6, label=label,
            )  # fmt: skip


def _personal_line(axes: Axes, history: History, rounds: NDArray[np.int64]) -> None:
    """Accuracy of the models that users keep for themselves, where they do."""
    values = history.column("personal_accuracy").astype(float)
    if np.isfinite(values).any():
        axes.plot(rounds, values, color=OKABE_ITO[4], linewidth=2.2, label="personal")


def _identities(axes: Axes, history: History) -> None:
    rounds = _rounds(history)
    if not _known(axes, "Task identities", history.column("clustering_accuracy"), rounds):
        return
    every = max(1, len(rounds) // 12)
    axes.plot(
        rounds, history.column("clustering_accuracy"), color=OKABE_ITO[0], marker="o", markersize=4.5,
        markevery=every, linewidth=1.8, label="share of right identities",
    )  # fmt: skip
    axes.plot(
        rounds, history.column("adjusted_rand_index"), color=OKABE_ITO[4], linestyle=":", marker="s", markersize=4,
        markevery=every, linewidth=1.5, label="adjusted Rand index",
    )  # fmt: skip
    lowest = min(0.0, float(np.nanmin(history.column("adjusted_rand_index"))))
    axes.set_ylim(lowest - 0.03, 1.03)
    _finish(axes, "Task identities", 1, int(rounds[-1]))
    axes.set_ylabel("share, index")


def _privacy(axes: Axes, history: History) -> None:
    rounds = _rounds(history)
    delta = history.scenario.privacy.delta
    # The exact formula is valid for purely Gaussian releases only.
    method: Method = "zcdp" if history.user_column("rho_identity").any() else "exact"
    spent = epsilons(history.user_column("rho").astype(float), delta, method)
    title = f"Privacy spent: epsilon at delta = {number(delta, 1)}"
    if not np.isfinite(spent).all():
        axes.text(
            0.5, 0.5, "unlimited:\nuploads left without noise", transform=axes.transAxes, ha="center", va="center",
            color=ALARM, fontsize=11,
        )  # fmt: skip
        axes.set_yticks([])
        _finish(axes, title, 1, int(rounds[-1]), legend=False)
        return
    users = spent.shape[1]
    axes.add_collection(
        LineCollection(
            [np.column_stack([rounds, spent[:, user]]) for user in range(users)],
            colors=MUTED,
            linewidths=0.8,
            alpha=float(np.clip(6.0 / users, 0.05, 0.5)),
        )
    )
    axes.plot([], [], color=MUTED, linewidth=0.8, label=f"each of {users} users")
    every = max(1, len(rounds) // 12)
    for values, label, colour, style, marker in (
        (spent.max(axis=1), "largest", OKABE_ITO[4], "-", "o"),
        (spent.mean(axis=1), "mean", OKABE_ITO[0], "--", "s"),
    ):
        axes.plot(
            rounds, values, color=colour, linestyle=style, marker=marker, markersize=4, markevery=every,
            linewidth=1.8, label=label,
        )  # fmt: skip
    budget = history.scenario.privacy.budget_epsilon
    if budget is not None:
        for row, limit in enumerate(sorted(set(np.atleast_1d(budget).tolist()))):
            axes.axhline(limit, color=INK, linestyle=":", linewidth=1.4, label="budget" if row == 0 else None)
    axes.autoscale_view()
    axes.set_ylabel("epsilon")
    _finish(axes, title, 1, int(rounds[-1]))


def _service(axes: Axes, history: History) -> None:
    rounds = _rounds(history)
    axes.bar(rounds, history.column("served"), width=0.8, color="#9ECAE1", label="served")
    axes.step(rounds, history.column("selected"), where="mid", color=INK, linewidth=1.1, label="chosen")
    axes.plot(
        rounds, history.column("violators"), color=ALARM, marker="x", markersize=5.5, linewidth=1.2,
        markevery=max(1, len(rounds) // 40), label="violating",
    )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.set_ylabel("users")
    axes.set_ylim(0, 1.06 * max(1, int(history.column("selected").max()), int(history.column("served").max())))
    _finish(axes, "Users served and violating", 1, int(rounds[-1]))


def _stack(axes: Axes, history: History, title: str, unit: str, parts: Sequence[tuple[str, str]]) -> None:
    rounds = _rounds(history)
    values = np.stack([history.column(name).astype(float) for name, _ in parts])
    total = values.sum(axis=0)
    size, prefix = prefix_of(float(np.nanmax(total)))
    bottom = np.zeros(len(rounds))
    for value, (_, label), (colour, hatch) in zip(values, parts, STACK, strict=True):
        axes.bar(
            rounds, value / size, bottom=bottom, width=0.8, color=colour, hatch=hatch if len(rounds) <= 60 else "",
            edgecolor="white" if len(rounds) <= 60 else colour, linewidth=0.3, label=label,
        )  # fmt: skip
        bottom = bottom + value / size
    axes.set_ylabel(f"{prefix}{unit} in a round")
    axes.set_ylim(0, 1.06 * float(np.nanmax(total) or 1.0) / size)
    _finish(axes, title, 1, int(rounds[-1]))


def _delay(axes: Axes, history: History) -> None:
    parts = (("uplink_s", "uplink"), ("compute_s", "computing"), ("downlink_s", "downlink"))
    _stack(axes, history, "Delay", "s", parts)


def _energy(axes: Axes, history: History) -> None:
    parts = (
        ("transmit_energy_j", "users sending"),
        ("compute_energy_j", "users computing"),
        ("station_energy_j", "stations"),
    )
    _stack(axes, history, "Energy", "J", parts)


def _clipping(axes: Axes, history: History) -> None:
    rounds = _rounds(history)
    if not _known(axes, "Per-sample gradients cut by clipping", history.column("clipped_fraction"), rounds):
        return
    axes.fill_between(rounds, history.column("clipped_fraction").astype(float), color=FAINT, alpha=0.5)
    axes.plot(
        rounds, history.column("clipped_fraction"), color=OKABE_ITO[0], marker="o", markersize=4,
        markevery=max(1, len(rounds) // 12), linewidth=1.8,
    )  # fmt: skip
    _finish(axes, "Per-sample gradients cut by clipping", 1, int(rounds[-1]), share=True, legend=False)


#: The panels of `draw_curves`, in order.
PANELS: dict[str, Panel] = {
    "loss": _loss,
    "accuracy": _accuracy,
    "identities": _identities,
    "privacy": _privacy,
    "service": _service,
    "clipping": _clipping,
    "delay": _delay,
    "energy": _energy,
}
