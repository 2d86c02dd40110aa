"""The corrected bound against real runs: loss, one-round and accumulated bound, and their contributions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from covey.evaluation import Estimate, mean_interval
from covey.figures.claims import Claim, judge_equal, judge_side, words
from covey.figures.definitions import difference
from covey.figures.draw import panels, sign
from covey.figures.plans import Work, figure_bound
from covey.figures.rows import Row, column, where
from covey.report.palette import INK, OKABE_ITO, drawing_style
from covey.report.words import count, listed
from covey.theory import CAUSES

TITLE = "The corrected bound against real runs"
CAPTION = (
    "Runs on digits, policy greedy: loss of all groups, weighted by samples, with the bound of each round, which starts"
    " from the loss measured before it, and bounds added up from the first loss on; and what adds to the bound over all"
    " rounds, by cause. Lines and bars are means, bands and whiskers 95 % intervals, faint lines and dots seeds."
)
#: Relative tolerance for comparing a loss with a bound: models are rounded to float32.
ROUNDING = 1e-6

Floats = NDArray[np.float64]


def rows(work: Work) -> list[Row]:
    """One row per seed, task and round. played: somebody took part; held: the loss was not above the bound; excess:
    by how much it was, in standard deviations of the effect of noise, if there was any."""
    found: list[Row] = []
    for cell in figure_bound(work):
        if work.store.has(cell):
            found += [row for task in work.store[cell]["tasks"] for row in _rounds(cell.seed, task)]
    return found


def _rounds(seed: int, task: Row) -> list[Row]:
    columns = task["rounds"]
    rate = task["curvature"]["learning_rate_times_largest"] / task["curvature"]["largest"]
    found: list[Row] = []
    for index, loss in enumerate(columns["loss"]):
        after, bound = columns["next_loss"][index], columns["bound"][index]
        held = after <= bound + ROUNDING * abs(loss)
        deviation = rate * columns["chance"][index]
        excess = 0.0 if held else (after - bound) / deviation if deviation > 0.0 else None
        found.append(
            {
                "seed": seed, "task": task["task"], "group": task["group"], "samples": task["samples"],
                "round": index + 1, "loss_before": loss, "loss": after, "bound": bound,
                "bound_accumulated": columns["bound_accumulated"][index], "bound_worst": columns["bound_worst"][index],
                "played": int(columns["length"][index] > 0.0 or columns["noise_energy"][index] > 0.0),
                "held": int(held), "excess": excess, "lowest": task["lowest_loss"],
            }
            | {name: columns[f"bound_{name}"][index] for name in CAUSES}
        )  # fmt: skip
    return found


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Loss and both bounds over rounds, and shares of causes."""
    with drawing_style():
        figure, axes = panels(2, width=10.0, height=4.3)
        losses, causes = axes[0]
        if data:
            _draw_losses(losses, data)
        losses.set(title="Loss and its bounds", xlabel="round", ylabel="loss, weighted by samples")
        _draw_shares(causes, data)
        sign(figure, setting)
        return figure


def _draw_losses(axis: Axes, data: Sequence[Row]) -> None:
    before = _weighted(data, "loss_before")[:, :1]
    rounds = np.arange(_weighted(data, "loss").shape[1] + 1)
    lines = (
        ("bounds added up", "bound_accumulated", OKABE_ITO[4], "--", "s"),
        ("bound of one round", "bound", OKABE_ITO[1], "-", "D"),
        ("measured loss", "loss", INK, "-", "o"),
    )
    top = 0.0
    for label, name, colour, style, marker in lines:
        values = np.hstack([before, _weighted(data, name)])
        found = [mean_interval(at) for at in values.T]
        axis.plot(rounds, values.T, color=colour, alpha=0.25, linewidth=0.7, linestyle=style)
        axis.fill_between(
            rounds, [e.low for e in found], [e.high for e in found], color=colour, alpha=0.15, linewidth=0
        )
        axis.plot(
            rounds, [e.value for e in found], color=colour, linestyle=style, marker=marker, markersize=3.8,
            linewidth=1.5, label=f"{label} (n = {len(values)})",
        )  # fmt: skip
        top = max(top, *(e.high for e in found))
    # Headroom for the legend above the data.
    axis.set_ylim(0.0, 1.3 * top)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(loc="upper right")


def _draw_shares(axis: Axes, data: Sequence[Row]) -> None:
    shares = _shares(data)
    for place, name in enumerate(CAUSES):
        if not len(shares[name]):
            continue
        found = mean_interval(shares[name])
        spread = np.linspace(-0.15, 0.15, len(shares[name])) if len(shares[name]) > 1 else np.zeros(1)
        axis.bar(place, found.value, width=0.6, color=OKABE_ITO[5], alpha=0.55)
        axis.plot(place + spread, shares[name], linestyle="", marker=".", markersize=5, color=OKABE_ITO[0])
        axis.errorbar(
            place, found.value, yerr=[[found.value - found.low], [found.high - found.value]], color=INK, capsize=3,
            linewidth=1.3,
        )  # fmt: skip
    axis.set_xticks(range(len(CAUSES)), [words_.replace(" ", "\n", 1) for words_ in CAUSES.values()])
    axis.set(title="What adds to the bound", ylabel="share of all that is added (%)")
    axis.set_ylim(bottom=0.0)


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """Whether the bound holds, how loose it is, and the causes of the looseness."""
    played = where(data, played=1)
    seeds = _seeds(played)
    held = 100.0 * np.array([column(one, "held").mean() for one in seeds])
    kept = mean_interval(held) if seeds else None
    loose = np.array([np.median(_ratio(one, "bound")) for one in seeds])
    ratio = mean_interval(loose) if seeds else None
    shares = _shares(data)
    lead = _lead(shares)
    return [
        Claim(
            figure="ours",
            claim="The measured loss is not above the corrected bound of the round, an expectation over noise.",
            paper="own result",
            quantity="tasks and rounds in which somebody took part and the loss was not above the bound",
            unit="%",
            estimate=kept,
            verdict=judge_equal(difference(held, np.full(len(held), 100.0))),
            reason=_held_reason(played),
            setting=setting,
            level=True,
        ),
        Claim(
            figure="ours",
            claim="The bound of a round is less than twice the measured loss.",
            paper="own result",
            quantity="bound of one round over measured loss, median over tasks and rounds in which somebody took part",
            unit="times",
            estimate=ratio,
            verdict=judge_side(difference(loose, np.full(len(loose), 2.0)), -1),
            reason=_loose_reason(data, played),
            setting=setting,
            level=True,
        ),
        Claim(
            figure="ours",
            claim=_dominance(shares),
            paper="own result",
            quantity="share of the largest cause in all that is added to the bound minus that of the second, the two"
            " being those with the largest means, paired by seed",
            unit="points",
            estimate=lead,
            verdict=judge_side(lead, 1),
            reason=_causes_reason(shares),
            setting=setting,
        ),
    ]


def _seeds(data: Sequence[Row]) -> list[list[Row]]:
    """The rows of every seed."""
    return [where(data, seed=seed) for seed in sorted({row["seed"] for row in data})]


def _weighted(data: Sequence[Row], name: str) -> Floats:
    """(seeds, rounds) a column averaged over tasks, weighted by the samples of their groups."""
    table = []
    for one in _seeds(data):
        rounds = [where(one, round=number) for number in sorted({row["round"] for row in one})]
        table.append([np.average(column(part, name), weights=column(part, "samples")) for part in rounds])
    return np.array(table)


def _ratio(part: Sequence[Row], bound: str) -> Floats:
    """(n,) ratio of a bound to the measured loss, both relative to the lowest possible loss."""
    lowest = column(part, "lowest")
    return np.asarray((column(part, bound) - lowest) / np.maximum(column(part, "loss") - lowest, np.finfo(float).tiny))


def _shares(data: Sequence[Row]) -> dict[str, Floats]:
    """(seeds,) for every cause: its share of all contributions to the bound over all rounds, in per cent."""
    added = [[float((column(one, "samples") * column(one, name)).sum()) for name in CAUSES] for one in _seeds(data)]
    table = np.array([parts for parts in added if sum(parts) > 0.0]).reshape(-1, len(CAUSES))
    shares = 100.0 * table / table.sum(axis=1, keepdims=True)
    return {name: shares[:, index] for index, name in enumerate(CAUSES)}


def _ordered(shares: dict[str, Floats]) -> list[str]:
    """Causes by decreasing mean share; empty without data."""
    known = [name for name in shares if len(shares[name])]
    return sorted(known, key=lambda name: -float(shares[name].mean()))


def _lead(shares: dict[str, Floats]) -> Estimate | None:
    first, second = (*_ordered(shares), None, None)[:2]
    return None if first is None or second is None else difference(shares[first], shares[second])


def _dominance(shares: dict[str, Floats]) -> str:
    order = _ordered(shares)
    return (
        f"The largest part of what is added to the bound is due to {CAUSES[order[0]]}."
        if order
        else "One cause adds most."
    )


def _held_reason(played: Sequence[Row]) -> str:
    if not played:
        return "There are no runs."
    above = where(played, held=0)
    text = (
        f"It held in {len(played) - len(above):,} of {count(len(played), 'step')} (a task in a round) in which somebody"
        " took part; a run is one draw of the noise."
    )
    if not above:
        return text
    excess = column(above, "excess")
    sizes = excess[np.isfinite(excess)]
    largest = f" by at most {sizes.max():.2f} standard deviations of what the noise did to it" if len(sizes) else ""
    quiet = len(above) - len(sizes)
    return f"{text} In {count(len(above), 'step')} the loss was above it{largest}" + (
        f"; in {quiet} of them there was no noise." if quiet else "."
    )


def _loose_reason(data: Sequence[Row], played: Sequence[Row]) -> str:
    if not played:
        return "There are no runs."
    worst = [float(np.median(_ratio(one, "bound_worst"))) for one in _seeds(played)]
    last = [where(one, round=max(row["round"] for row in one)) for one in _seeds(data)]
    summed = [_mean(one, "bound_accumulated") / max(_mean(one, "loss"), np.finfo(float).tiny) for one in last]
    return (
        f"At most {_ratio(played, 'bound').max():.2f} times in a single step. Bounds added up over all rounds are"
        f" {np.mean(summed):.2f} times the loss at the end ({min(summed):.2f} to {max(summed):.2f} over seeds). From"
        " who took part and the clipping norms alone, as in the theorem, the bound of a round is"
        f" {np.mean(worst):.2f} times the loss (median)."
    )


def _mean(part: Sequence[Row], name: str) -> float:
    """A column above the lowest loss, averaged by samples."""
    return float(np.average(column(part, name) - column(part, "lowest"), weights=column(part, "samples")))


def _causes_reason(shares: dict[str, Floats]) -> str:
    order = _ordered(shares)
    if not order:
        return "There are no runs in which something is added."
    parts = [f"{CAUSES[name]} {_share(shares[name])}" for name in order]
    first = sum(
        int(max(shares, key=lambda name: shares[name][seed]) == order[0]) for seed in range(len(shares[order[0]]))
    )
    return (
        f"Shares: {listed(parts)}. The largest of them, {CAUSES[order[0]]}, is the largest in {first} of"
        f" {count(len(shares[order[0]]), 'run')}."
    )


def _share(values: Floats) -> str:
    """A share with its interval, without sign and number of seeds."""
    return words(mean_interval(values), "%").lstrip("+").rsplit(", n = ", 1)[0]
