"""Training plot: reward, violations, served users and loss over epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from covey.agents.settings import LearnerSettings
from covey.network import VIOLATION_KINDS
from covey.report.palette import ALARM, FAINT, MUTED, OKABE_ITO, drawing_style
from covey.report.words import VIOLATION_NAMES


def draw_training(rows: Sequence[dict[str, Any]], settings: LearnerSettings) -> Figure:
    """Four panels over the epochs of a training, from the rows of its metrics.csv."""
    with drawing_style():
        figure = Figure(figsize=(9.6, 6.4), layout="constrained")
        axes = figure.subplots(2, 2)
        epochs = np.array([row["epoch"] for row in rows])

        def column(name: str) -> NDArray[np.float64]:
            return np.array([row[name] for row in rows], dtype=np.float64)

        _rewards(axes[0, 0], epochs, column)
        _violations(axes[0, 1], epochs, column)
        served = axes[1, 0]
        served.plot(epochs, column("served"), color=OKABE_ITO[0])
        served.set(title="Served users per round", xlabel="epoch", ylim=(0, None))
        loss = axes[1, 1]
        loss.plot(epochs, column("loss"), color=OKABE_ITO[2], label="loss of the value network")
        loss.plot(epochs, column("epsilon"), color=MUTED, linestyle="--", label="explored choices (epsilon)")
        loss.set(title="Learning", xlabel="epoch", ylim=(0, None))
        loss.legend()
        figure.suptitle(
            f"{settings.algorithm}, {settings.head} head, {settings.penalty} penalty", x=0.01, ha="left", fontsize=11
        )
        return figure


def _rewards(axes: Axes, epochs: NDArray[np.int64], column: Any) -> None:
    axes.plot(epochs, column("reward_without_penalty"), color=FAINT, label="explored, without penalty")
    for name, colour, marker in (("alone", OKABE_ITO[4], "s"), ("guarded", OKABE_ITO[0], "o")):
        values = column(f"{name}_reward")
        known = ~np.isnan(values)
        axes.plot(epochs[known], values[known], color=colour, marker=marker, markersize=4, label=f"validation, {name}")
    axes.set(title="Accumulated reward of an episode", xlabel="epoch")
    # Early violations cost hundreds of thousands; the axis covers the range after they become rare.
    shown = np.concatenate([column("reward_without_penalty"), column("guarded_reward"), column("alone_reward")[-1:]])
    shown = shown[~np.isnan(shown)]
    if len(shown) > 1 and shown.max() > shown.min():
        low, high = np.quantile(shown, 0.02), shown.max()
        axes.set_ylim(low - 0.15 * (high - low) - 1, high + 0.1 * (high - low) + 1)
    axes.legend()


def _violations(axes: Axes, epochs: NDArray[np.int64], column: Any) -> None:
    axes.plot(epochs, column("violators"), color=ALARM, label="all")
    for index, kind in enumerate(VIOLATION_KINDS):
        values = column(kind)
        if np.any(values > 0):
            colour = OKABE_ITO[index]
            axes.plot(epochs, values, color=colour, linewidth=1.0, label=VIOLATION_NAMES[kind])
    axes.set(title="Violating users per episode, while exploring", xlabel="epoch")
    if column("violators").max() > 20:
        axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(0, None)
    axes.legend()
