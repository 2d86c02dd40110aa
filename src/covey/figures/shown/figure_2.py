"""Fig. 2: samples per class of every user, sorted by group."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from covey.evaluation import Estimate, mean_interval
from covey.figures.claims import Claim, judge_side
from covey.figures.draw import panels, sign
from covey.figures.plans import Work, figure_2
from covey.figures.rows import Row
from covey.report.palette import drawing_style
from covey.report.words import count

TITLE = "Samples per user and class, by group"
CAPTION = (
    "Training samples of every user, stacked by class; users of one group stand side by side. One partition of the"
    " data; classes that nobody holds are left out."
)
#: Paul Tol's muted palette, safe for colour blindness, and grey; every second class is hatched.
COLOURS = (
    "#332288", "#88CCEE", "#117733", "#DDCC77", "#CC6677", "#44AA99", "#882255", "#999933", "#AA4499", "#777777",
)  # fmt: skip
HATCHES = ("", "////")
#: Empty columns between groups.
GAP = 0.7

Floats = NDArray[np.float64]


def rows(work: Work) -> list[Row]:
    """One row per user and class."""
    found: list[Row] = []
    for cell in figure_2(work):
        if not work.store.has(cell):
            continue
        values = work.store[cell]
        for user, (counts, group) in enumerate(zip(values["counts"], values["groups"], strict=True)):
            for label, (name, samples) in enumerate(zip(values["classes"], counts, strict=True)):
                found.append({
                    "seed": cell.seed, "user": user, "group": group, "label": label, "class": name, "samples": samples,
                })  # fmt: skip
    return found


def draw(data: Sequence[Row], setting: str) -> Figure:
    """One bar per user."""
    users, groups, counts = _table(data)
    names = {int(row["label"]): str(row["class"]) for row in data}
    order = np.lexsort((users, groups))
    _, rank = np.unique(groups[order], return_inverse=True)
    places = np.arange(len(order)) + GAP * rank
    with drawing_style():
        figure, axes = panels(1, width=8.4, height=4.2)
        axis = axes[0, 0]
        bottom = np.zeros(len(order))
        for label in np.flatnonzero(counts.sum(axis=0) > 0).tolist():
            axis.bar(
                places, counts[order, label], bottom=bottom, width=0.82, color=COLOURS[label % len(COLOURS)],
                hatch=HATCHES[label % 2], edgecolor="white", linewidth=0.4, label=names[label],
            )  # fmt: skip
            bottom += counts[order, label]
        top = float(bottom.max(initial=1.0))
        for group in np.unique(groups):
            middle = float(places[groups[order] == group].mean())
            axis.text(middle, 1.06 * top, f"group {group}", ha="center", va="bottom", fontsize=9.0)
        axis.set_xticks(places, [str(user) for user in users[order]])
        axis.set(title=TITLE, xlabel="user", ylabel="training samples", ylim=(0.0, 1.16 * top))
        if len(order):
            handles, labels = axis.get_legend_handles_labels()
            axis.legend(
                handles[::-1], labels[::-1], title="class", loc="center left", bbox_to_anchor=(1.0, 0.5),
                handleheight=1.3,
            )  # fmt: skip
        sign(figure, setting)
        return figure


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """Whether users of one group hold the same classes while groups differ."""
    users, groups, counts = _table(data)
    apart = _distances(counts)
    gap = _between_minus_within(apart, groups)
    return [
        Claim(
            figure="2",
            claim="Users of one group hold the same classes in similar shares; groups differ.",
            paper="no number",
            quantity="total variation distance between users' class shares, to users of other groups minus to users of"
            " one's own, one value per user",
            unit="points",
            estimate=gap,
            verdict=judge_side(gap, 1),
            reason=_reason(apart, users, groups, counts),
            setting=setting,
        )
    ]


def _table(data: Sequence[Row]) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """(U,) users, (U,) groups and (U, classes) counts."""
    group = {int(row["user"]): int(row["group"]) for row in data}
    users = np.array(sorted(group), dtype=np.int64)
    counts = np.zeros((len(users), max((int(row["label"]) for row in data), default=-1) + 1))
    place = {user: index for index, user in enumerate(users.tolist())}
    for row in data:
        counts[place[int(row["user"])], int(row["label"])] += row["samples"]
    return users, np.array([group[user] for user in users.tolist()], dtype=np.int64), counts


def _distances(counts: Floats) -> Floats:
    """(U, U) total variation distances between class shares, in points."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return np.asarray(50.0 * np.abs(shares[:, None] - shares[None]).sum(axis=2))


def _between_minus_within(apart: Floats, groups: NDArray[np.int64]) -> Estimate | None:
    """Mean distance between groups minus within groups, over users with others both inside and outside their group."""
    same = groups[:, None] == groups[None]
    own = same & ~np.eye(len(groups), dtype=bool)
    kept = np.flatnonzero(own.any(axis=1) & ~same.all(axis=1))
    values = [apart[user, ~same[user]].mean() - apart[user, own[user]].mean() for user in kept]
    return mean_interval(np.array(values)) if values else None


def _reason(apart: Floats, users: NDArray[np.int64], groups: NDArray[np.int64], counts: Floats) -> str:
    pairs = list(combinations(range(len(users)), 2))
    within = [float(apart[pair]) for pair in pairs if groups[pair[0]] == groups[pair[1]]]
    between = [float(apart[pair]) for pair in pairs if groups[pair[0]] != groups[pair[1]]]
    if not within or not between:
        return "There are no two groups with company to compare."
    held = counts > 0
    each = [held[groups == group] for group in np.unique(groups)]
    alike = sum(bool((mine == mine[0]).all()) for mine in each)
    sizes = counts.sum(axis=1)
    return (
        f"Mean distance {np.mean(within):.1f} points over {count(len(within), 'pair')} within groups (at most"
        f" {max(within):.1f}) and {np.mean(between):.1f} over {count(len(between), 'pair')} between groups (at least"
        f" {min(between):.1f}). In {alike} of {count(len(each), 'group')} all users hold exactly the same classes."
        f" Users hold {sizes.min():,.0f} to {sizes.max():,.0f} samples."
    )
