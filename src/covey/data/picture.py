"""Plots of a data set and its partition: stacked class counts per user, and sample images."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from covey.data.types import Dataset, Features, Labels, UserData
from covey.errors import OutputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Ten colours that are distinguishable under common colour blindness (Okabe-Ito, and two of Tol's).
CLASS_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#882255", "#BBBBBB", "#000000",
)  # fmt: skip

IMAGES_PER_ROW = 10
MAX_ROWS = 8
_NAMED_BARS = 40


def draw_users(users: UserData, dataset: Dataset, title: str, path: Path) -> None:
    """Plots all users by group: class counts as stacked bars, and sample images of each group."""
    order = np.argsort(users.groups, kind="stable")
    rows = []
    for group in np.unique(users.groups)[:MAX_ROWS]:
        mine = np.flatnonzero(np.repeat(users.groups, users.samples) == group)
        chosen = mine[np.linspace(0, len(mine) - 1, IMAGES_PER_ROW).astype(int)]
        rows.append((f"group {group}", users.x[chosen], users.y[chosen]))
    names = [str(user) for user in order]
    _draw(title, "user", names, users.class_counts()[order], users.groups[order], dataset, rows, path)


def draw_dataset(dataset: Dataset, path: Path) -> None:
    """Plots a data set: its class frequencies, and sample images of both splits."""
    halves = (("training", ~dataset.test), ("test", dataset.test))
    counts = np.stack([np.bincount(dataset.y[half], minlength=len(dataset.classes)) for _, half in halves])
    rows = []
    for name, half in halves:
        present = np.unique(dataset.y[half])
        classes = present[np.linspace(0, len(present) - 1, min(IMAGES_PER_ROW, len(present))).astype(int)]
        chosen = np.array([np.flatnonzero(half & (dataset.y == c))[0] for c in classes])
        rows.append((name, dataset.normalise(dataset.x[chosen]), dataset.y[chosen]))
    _draw(dataset.name, "half", [n for n, _ in halves], counts, np.zeros(2, np.int64), dataset, rows, path)


def _draw(
    title: str,
    axis: str,
    names: list[str],
    counts: Labels,
    groups: Labels,
    dataset: Dataset,
    rows: list[tuple[str, Features, Labels]],
    path: Path,
) -> None:
    from matplotlib.figure import Figure  # imported here: matplotlib takes a second to load

    images = len(dataset.shape) == 3
    width = float(np.clip(0.42 * len(names) + 4.0, 8.0, 15.0))
    strip = 0.95 * len(rows) if images else 0.0
    figure = Figure(figsize=(width, 4.4 + strip), layout="constrained")
    grid = figure.add_gridspec(1 + (len(rows) if images else 0), 1, height_ratios=[4.4] + [0.95] * len(rows) * images)
    axes = figure.add_subplot(grid[0])
    _bars(axes, axis, names, counts, groups, dataset.classes)
    axes.set_title(title, loc="left", fontweight="bold", pad=22)
    for row, (label, x, y) in enumerate(rows if images else []):
        _strip(figure.add_subplot(grid[row + 1]), label, dataset.restore(x), [dataset.classes[c] for c in y])
    _save(figure, path)


def _bars(axes: Axes, axis: str, names: list[str], counts: Labels, groups: Labels, classes: tuple[str, ...]) -> None:
    present = np.flatnonzero(counts.sum(axis=0))
    colours = _colours(present, len(classes))
    place = np.arange(len(names)) + max(0.8, 0.02 * len(names)) * groups  # a gap between groups
    bottom = np.zeros(len(names))
    tallest = counts.sum(axis=1).max()
    wide = len(names) <= _NAMED_BARS
    letters = 12 if len(names) < 6 else 5
    for colour, c in zip(colours, present, strict=True):
        values = counts[:, c]
        axes.bar(
            place, values, bottom=bottom, color=colour, label=classes[c],
            width=0.86 if wide else 1.0, edgecolor="white", linewidth=0.4 if wide else 0.0,
        )  # fmt: skip
        name = classes[c] if len(classes[c]) <= letters + 1 else f"{classes[c][:letters]}."
        for i in np.flatnonzero(values > 0.06 * tallest) if wide else ():
            middle = bottom[i] + values[i] / 2
            axes.text(place[i], middle, name, ha="center", va="center", color=_ink_on(colour), size=8)
        bottom += values
    axes.set_ylabel("training samples" if axis == "user" else "samples")
    axes.set_xlabel(axis)
    axes.set_xticks(place if wide else [], names if wide else [])
    axes.yaxis.set_major_formatter("{x:,.0f}")
    if axis == "user":
        for group in np.unique(groups):
            axes.annotate(
                f"group {group}", (place[groups == group].mean(), 1.0), xycoords=("data", "axes fraction"),
                xytext=(0, 5), textcoords="offset points", ha="center", fontweight="bold", size=9,
            )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    axes.legend(
        title="class", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8, reverse=True,
        ncols=1 + (len(present) - 1) // 16,
    )  # fmt: skip


def _strip(axes: Axes, label: str, images: Features, names: list[str]) -> None:
    channels, height, width = images.shape[1:]
    gap = max(1, width // 8)
    canvas: NDArray[Any] = np.ones((height, len(images) * (width + gap) - gap, channels), np.float32)
    for i, image in enumerate(np.clip(images, 0.0, 1.0)):
        left = i * (width + gap)
        canvas[:, left : left + width] = image.transpose(1, 2, 0)
        axes.text(left + width / 2, -0.06 * height, names[i], ha="center", va="bottom", size=8)
    colour = channels == 3
    axes.imshow(canvas if colour else canvas[..., 0], cmap=None if colour else "gray", vmin=0, vmax=1)
    axes.set_ylabel(label, rotation=0, ha="right", va="center")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _colours(present: Labels, classes: int) -> list[str]:
    """A colour for each class present; with at most ten classes, each has the same colour in every plot."""
    if classes <= len(CLASS_COLOURS):
        return [CLASS_COLOURS[c] for c in present]
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.0, 1.0, len(present)))]


def _ink_on(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 125 else "black"


def _save(figure: Any, path: Path) -> None:
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.lstrip(".") or "png", dpi=110)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.getvalue())
    except OSError as error:
        raise OutputError(f"the picture cannot be written to {path}: {error.strerror or error}") from None
