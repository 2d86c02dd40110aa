"""docs/how_private.md and its picture, from the files in results/how_private alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from how_private_runs import AGAIN, DATA, DEVELOPMENT, EPSILONS, JUDGED, NONE, best, cases
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from covey.evaluation import Estimate, mean_interval
from covey.figures.cells import cells_in
from covey.jobs import Record, versions_text
from covey.report.palette import INK, MARKERS, MUTED, OKABE_ITO, drawing_style

CURVES = {
    ("sample", "single"): "one sample, every upload seen",
    ("sample", "sums"): "one sample, only sums seen",
    ("device", "single"): "a whole device, every upload seen",
    ("device", "sums"): "a whole device, only sums seen",
}


class Goal(NamedTuple):
    """A test accuracy that was to be reached, groups found."""

    data: str
    sight: str
    epsilon: float
    accuracy: float


#: Set before the judged seeds were looked at.
GOALS = (
    Goal("cifar10_12", "single", NONE, 0.85),
    Goal("femnist_12", "single", NONE, 0.87),
    Goal("femnist_100", "single", NONE, 0.87),
    Goal("digits", "single", 4.0, 0.93),
    Goal("cifar10_100", "single", 8.0, 0.70),
    Goal("femnist_100", "single", 8.0, 0.60),
)
#: The smallest difference between epsilons that two decimals show.
_SHOWN = 0.005
#: (data, unit, sight, epsilon, groups)
Key = tuple[str, str, str, float, str]


class Found(NamedTuple):
    """Judged records by point and by data, each in the order of their seeds, and how many were tried before."""

    runs: dict[Key, list[Record]]
    lines: dict[str, list[Record]]
    tried: int
    dropped: int
    versions: str

    def mean(self, key: Key, name: str) -> Estimate:
        """Mean of a value over seeds."""
        return _mean(self.runs[key], name)

    def spent(self, key: Key) -> float:
        """Largest epsilon of a user in any of the runs, against those who see what the point says."""
        name = "epsilon_sums" if key[2] == "sums" else "epsilon_max"
        return max(float(one.values[name]) for one in self.runs[key])

    def line(self, data: str, name: str) -> Estimate:
        """Mean of one of both lines over seeds."""
        return _mean(self.lines[data], name)


def read(folder: Path) -> Found:
    """All judged records of a folder."""
    store = cells_in(folder, any_version=True)
    records, lines = store.records("how_private"), store.records("how_private_lines")
    shown = sorted((one for one in records if one.job["seed"] >= JUDGED), key=lambda one: int(one.job["seed"]))
    runs: dict[Key, list[Record]] = {}
    chosen = best(records)
    for one in shown:
        job = one.job
        point = (job["data"], job["unit"], job["sight"], float(job["epsilon"]))
        if chosen.get(point) == job["setting"] and job["seed"] >= DATA[job["data"]].first:
            runs.setdefault((*point, job["groups"]), []).append(one)
    by_data: dict[str, list[Record]] = {}
    for one in sorted(lines, key=lambda one: int(one.job["seed"])):
        if one.job["seed"] >= DATA[one.job["data"]].first:
            by_data.setdefault(one.job["data"], []).append(one)
    kept = sum(len(one) for one in runs.values())
    mine = sum(one.job["seed"] >= DATA[one.job["data"]].first for one in shown)
    return Found(runs, by_data, len(records) - len(shown), mine - kept, versions_text(records) if records else "")


def _mean(records: list[Record], name: str) -> Estimate:
    return mean_interval(np.array([one.values[name] for one in records], dtype=np.float64))


def _shown(found: Found) -> list[str]:
    """Data sets with judged runs and both lines, in the order of the study."""
    return [data for data in DATA if data in found.lines and any(key[0] == data for key in found.runs)]


def draw(found: Found) -> Figure:
    """One panel per data set: accuracy against epsilon, groups found (filled) and given (hollow)."""
    names = _shown(found)
    with drawing_style():
        figure = Figure(figsize=(12.6, 7.2), layout="constrained")
        grid = figure.subplots(2, 3, squeeze=False).ravel()
        for axes in grid[len(names) :]:
            axes.set_axis_off()
        for axes, data in zip(grid, names, strict=False):
            _draw_panel(axes, found, data)
        styles = zip(CURVES.values(), OKABE_ITO, MARKERS, strict=False)
        handles = [Line2D([], [], color=colour, marker=mark, label=name) for name, colour, mark in styles]
        handles += [
            Line2D([], [], color=MUTED, marker="o", linestyle="none", label="groups found"),
            Line2D([], [], color=MUTED, marker="o", markerfacecolor="white", linestyle="none", label="groups given"),
            Line2D([], [], color=INK, linestyle=":", label="central model, no noise"),
            Line2D([], [], color=INK, linestyle="--", label="most frequent class"),
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=9)
        return figure


def _draw_panel(axes: Axes, found: Found, data: str) -> None:
    right = 6.0 * max(EPSILONS)  # where runs without noise are drawn
    axes.axhline(found.line(data, "central").value, color=INK, linestyle=":", linewidth=1.2)
    axes.axhline(found.line(data, "majority").value, color=INK, linestyle="--", linewidth=1.2)
    for (unit, sight), colour, mark in zip(CURVES, OKABE_ITO, MARKERS, strict=False):
        for groups in ("found", "given"):
            own = [e for e in EPSILONS if (data, unit, sight, e, groups) in found.runs]
            values = [found.mean((data, unit, sight, e, groups), "accuracy") for e in own]
            spent = [found.spent((data, unit, sight, e, groups)) for e in own]
            if not own:
                continue
            axes.errorbar(
                spent, [value.value for value in values],
                yerr=[value.half_width for value in values], color=colour, marker=mark, markersize=5, linewidth=1.3,
                elinewidth=0.8, capsize=2.0, linestyle="-" if groups == "found" else "none",
                markerfacecolor=colour if groups == "found" else "white",
            )  # fmt: skip
    for groups, face in (("given", "white"), ("found", INK)):
        if (key := (data, "sample", "single", NONE, groups)) in found.runs:
            value = found.mean(key, "accuracy")
            axes.errorbar(
                [right], [value.value], yerr=[value.half_width], color=INK, marker="o", markerfacecolor=face,
                capsize=2.0,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks([*EPSILONS, right], [*(f"{e:g}" for e in EPSILONS), "no noise"])
    axes.set_xticks([], minor=True)
    axes.set(xlim=(0.7, 1.4 * right), ylim=(0.0, 1.0), xlabel="largest epsilon of a user", ylabel="test accuracy")
    axes.set_title(f"{DATA[data].title} (n = {len(found.lines[data])})", fontsize=9.5)


def page(found: Found) -> str:
    """The page."""
    names = _shown(found)
    lines = [
        "# How well, how private",
        "",
        "Generated by `experiments/how_private.py` from `results/how_private/`; no number of a run is typed by hand.",
        f"Versions: {found.versions}.",
        "",
        *_text(
            _IDEA.format(
                development=DEVELOPMENT, judged=JUDGED, again=AGAIN, tried=f"{found.tried:,}", dropped=found.dropped
            )
        ),
        "## The call",
        "",
        "<!-- not run: minutes, and it needs CIFAR-10 and FEMNIST -->",
        "```sh",
        "covey run cifar10 --set privacy.target_epsilon=8",
        "covey run femnist --set privacy.target_epsilon=4 --reference",
        "covey run quick --set privacy.target_epsilon=2",
        "```",
        "",
        "## The picture",
        "",
        "![Test accuracy against epsilon](images/how_private.png)",
        "",
        *_text(_READ),
        *_text(_compared(found)),
        "## Goals",
        "",
        *_goals(found),
    ]
    for data in names:
        lines += [f"## {DATA[data].title[0].upper()}{DATA[data].title[1:]}", "", *_table(found, data), ""]
    return "\n".join([*lines, *_text(_LIMITS)]).rstrip() + "\n"


def _goals(found: Found) -> list[str]:
    rows = ["| data | epsilon | goal | n | test accuracy, groups found | largest epsilon | |", "| --- " * 7 + "|"]
    for goal in GOALS:
        key = (goal.data, "sample", goal.sight, goal.epsilon, "found")
        if key not in found.runs:
            rows.append(
                f"| {DATA[goal.data].title} | {_epsilon(goal.epsilon)} | {goal.accuracy:.2f} | 0 | not run | | |"
            )
            continue
        value = found.mean(key, "accuracy")
        spent = found.spent(key)
        verdict = "reached" if value.value >= goal.accuracy else "**not reached**"
        if value.low < goal.accuracy <= value.high:
            verdict += " on average, not decided"
        if goal.epsilon != NONE and spent > 1.001 * goal.epsilon:
            verdict = "**not shown**: a user went beyond"
        rows.append(
            f"| {DATA[goal.data].title} | {_epsilon(goal.epsilon)} | {goal.accuracy:.2f} | {value.n} | {_plus(value)} |"
            f" {'none' if goal.epsilon == NONE else f'{spent:.2f}'} | {verdict} |"
        )
    return [*rows, ""]


def _compared(found: Found) -> str:
    """How far the largest epsilon with groups found is from that with groups given, in rows of uploads and of sums."""
    words = []
    for sight, seen in (("single", "of uploads seen singly"), ("sums", "of sums")):
        more = {
            key: found.spent(key) - found.spent(_told(key))
            for key in found.runs
            if key[2] == sight and key[4] == "found" and _told(key) in found.runs
        }
        if not more:
            continue
        below, above = ([key for key in more if sign * more[key] >= _SHOWN] for sign in (-1, 1))
        words.append(
            f"In the {len(more)} rows {seen} with both, it is larger with groups found in"
            f" {_at_most(found, above, more)}, and smaller in {_at_most(found, below, more)}."
        )
    return " ".join(words)


def _at_most(found: Found, some: list[Key], more: dict[Key, float]) -> str:
    """In how many rows there is a difference, and the largest."""
    if not some:
        return "none"
    return f"{len(some)}, by at most {_difference(found, max(some, key=lambda key: abs(more[key])))}"


def _told(key: Key) -> Key:
    """The same point with groups given."""
    return (*key[:4], "given")


def _difference(found: Found, key: Key) -> str:
    """The difference at a point, both values, and where it is."""
    data, unit, _, epsilon, _ = key
    own, told = found.spent(key), found.spent(_told(key))
    return f"{abs(own - told):.2f} ({own:.2f} against {told:.2f}; {DATA[data].title}; one {unit}, epsilon {epsilon:g})"


def _table(found: Found, data: str) -> list[str]:
    guess, central = found.line(data, "majority"), found.line(data, "central")
    rows = [
        f"Most frequent class {_plus(guess)}, central model without noise {_plus(central)} (n = {guess.n}).",
        f"Dealt as the preset `{DATA[data].scenario}`{_changes(data)}.",
        "",
        "| protected | seen | epsilon | n | accuracy, groups found | groups given | users on the right model |"
        " largest epsilon, groups found | groups given | of all uploads seen singly | of one upload | setting |",
        "| --- " * 12 + "|",
    ]
    for unit, sight, epsilon in cases(data):
        key, given = (data, unit, sight, epsilon, "found"), (data, unit, sight, epsilon, "given")
        if key not in found.runs:
            continue
        runs = found.runs[key]
        free = epsilon == NONE
        cells = (
            "nothing" if free else f"one {unit}",
            "all" if free else {"single": "every upload", "sums": "sums"}[sight],
            _epsilon(epsilon),
            str(len(runs)),
            _plus(found.mean(key, "accuracy")),
            _plus(found.mean(given, "accuracy")) if given in found.runs else "not run",
            f"{found.mean(key, 'clustering_accuracy').value:.3f}",
            "none" if free else f"{found.spent(key):.2f}",
            "none" if free else f"{found.spent(given):.2f}" if given in found.runs else "not run",
            "none" if free else f"{max(float(one.values['epsilon_max']) for one in runs):.2f}",
            "none" if free else f"{max(float(one.values['epsilon_upload']) for one in runs):.2f}",
            " ".join(f"`{word.removeprefix('training.')}`" for word in runs[0].job["setting"].split()),
        )
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _changes(data: str) -> str:
    """The overrides that all runs of a data set share."""
    words = [f"`{word}`" for word in DATA[data].overrides if not word.startswith("reward.")]
    return f" with {', '.join(words)}" if words else ""


def _plus(value: Estimate) -> str:
    return f"{value.value:.3f} ± {value.half_width:.3f}" if value.n > 1 else f"{value.value:.3f} (n = 1)"


def _epsilon(value: float) -> str:
    return "none" if value == NONE else f"{value:g}"


def _text(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in textwrap.dedent(text).strip().split("\n\n"):
        body = " ".join(paragraph.split())
        hanging = "  " if body.startswith("- ") else ""
        lines += textwrap.wrap(body, 118, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
        lines.append("")
    return lines


_IDEA = """
How accurate are the models at a privacy that means something? That depends on what is protected (one sample of a
user, or all of a device), on who looks (somebody who sees every upload, or only sums of several), on how many users
share a group, and on how many weights carry noise.

All runs use a `softmax` model, on CIFAR-10 and FEMNIST on features (`data.transform = "hog"`) that are computed from
each sample alone, so that they cost no privacy. Noise on all of 550,000 weights would be five (FEMNIST) to thirteen
(CIFAR-10) times as long. Noise follows from `privacy.target_epsilon` (delta = 1e-5, one sample replaced, or one
device); the largest epsilon of a
user is from the ledger, over all seeds, and lower where nobody is served in every round. Policy `greedy`. Where groups
are found, identities are `raw`, which epsilon does not cover, with masks or without, and `clustering.turns = false`:
nobody waits for its turn, as users do by default ([turns](clustering.md)). Where groups are given there are no turns in
any case.

Settings were chosen on development seeds ({development} and up, groups given, {tried} runs: every setting of a
small grid for every point, the highest mean accuracy; two seeds with 12 users, one with 100). {dropped} judged runs of
settings that were left out later, because they took minutes, are not shown. Judged seeds are new deals from the same
pools of samples, not new samples. Judged seeds ({judged} and up) were computed once, with the
chosen settings; digits from {again} on, because the seeds before were looked at with targets of 1.2 times epsilon,
which some users went beyond.
"""
_READ = """
Mean over seeds with its 95 % interval, drawn at the largest epsilon of a user in any of the runs. Filled: every
device finds its group itself; hollow: it is told. Both have a largest epsilon of their own, because who shares a sum,
or a cap on the noise, depends on the groups; columns that do not say "groups given" are those of runs with groups
found. "Only sums seen" assumes secure aggregation (`security.mode = "masked"`) in which no sum of fewer than 13
uploads is opened (2 with 12 users), and that the others in a sum are honest: their noise protects the user too, so
that each adds less. An upload in a sum of too few is seen by nobody, but counts as if it was seen, which takes some
runs beyond their target. The runs of sums were made without masks in the mode `blind`, whose sums are equal up to
rounding. Whoever sees single uploads there learns more: the table has epsilon for all of them and for the worst one.
The central model is the same network on `hog`; runs without noise may use the finer features of `hog_fine`, and end
above it.
"""
_LIMITS = """
## What limits accuracy

- **Noise per weight.** Of n users of a group with X samples each, the mean gradient carries noise of length about
2 C sqrt(T D / n) / (mu X), with clipping norm C, T rounds, D weights, and mu = 1.67 at epsilon 8 and 0.27 at epsilon 1,
against gradients of at most C. More users, more samples, or fewer weights help; more rounds do not.

- **Whole devices.** A device's update counts as one, however many samples it holds: X drops out of the formula, and
noise is X times as long against what is learned. With these numbers of users, models that protect devices are worse
than naming the most frequent class where every upload is seen; sums help by the square root of their size. How many
devices it takes: [device-level privacy](howto-device-privacy.md).

- **Choices.** Epsilon does not cover that rounds and rates were chosen by accuracy.

- **Writers.** Users here hold samples of several writers; whole writers as users (`data.partition = "writer"`) leave 60
samples for each of 100 users of this file.

- **Tasks** that are announced privately cost more, at small epsilon much more ([private identities](identities.md)).
"""
