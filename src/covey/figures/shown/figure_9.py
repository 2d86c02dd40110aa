"""Fig. 9: decentralised identification against central k-means on uploaded models: accuracy, energy and time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from covey.evaluation import Estimate, mean_interval
from covey.figures.claims import Claim, judge, words
from covey.figures.definitions import change, difference
from covey.figures.draw import curves, look, panels, sign
from covey.figures.plans import DEFAULT_RULE, Work
from covey.figures.rows import Row, column, grid, paired, where
from covey.figures.shown.over_rounds import FACTORS, compared_rows, default_rows, noise_rows
from covey.report.palette import INK, STACK, drawing_style
from covey.report.words import listed, quantity

TITLE = "Users' own rule against central k-means"
CAPTION = (
    "Clustering accuracy over rounds, and energy of all users and time of a whole run: bars and lines are means, dots"
    " and faint lines seeds, whiskers and bands 95 % intervals; policy greedy. Computing follows the scenario's"
    " compute.cycles_per_weight, compute.frequency_hz and compute.capacitance, sending radio.user_power_dbm,"
    " radio.block_bandwidth_hz, radio.noise_dbm_per_block, radio.model_bits and the channel, broadcasts"
    " radio.downlink_rate_bps. Users' own rule has the paper's start, in which groups may collide (errata E49), unless"
    " its name says otherwise; k-means has a start of its own."
)
OURS, THEIRS = "gradient_loss_0.2", "kmeans"
SHOWN = (OURS, THEIRS)
#: What is drawn: our rule with covey's start too, which no claim is judged on.
DRAWN = (OURS, DEFAULT_RULE, THEIRS)
#: Parts of the energy and of the time of a round, with their names.
ENERGY = {"transmit_energy_j": "sending", "compute_energy_j": "computing"}
TIME = {"uplink_s": "uplink", "compute_s": "computing", "downlink_s": "downlink"}
_COLUMNS = ("clustering_accuracy", "served", *ENERGY, *TIME)


def rows(work: Work) -> list[Row]:
    """One row per rule, seed and round; runs on digits with and without noise, `part` = "noise"; covey's start."""
    found: list[Row] = []
    for rule in SHOWN:
        for seed in range(work.seeds):
            found += compared_rows(work, rule, seed, _COLUMNS) + noise_rows(work, rule, seed, _COLUMNS)
    return [*found, *(row for seed in range(work.seeds) for row in default_rows(work, seed, _COLUMNS))]


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Accuracy over rounds, energy and time by part."""
    compared = [row for row in data if row["part"] != "noise"]
    drawn = [rule for rule in DRAWN if where(compared, rule=rule)] or [*SHOWN]
    with drawing_style():
        figure, axes = panels(3, width=11.0, height=4.2)
        accuracy, energy, time = axes[0]
        for rule in drawn:
            rounds, values = grid(where(compared, rule=rule), "round", "clustering_accuracy")
            if len(values):
                curves(accuracy, rounds, values, rule)
        accuracy.set(title="Clustering accuracy", xlabel="round", ylabel="clustering accuracy", ylim=(0.0, 1.03))
        accuracy.xaxis.set_major_locator(MaxNLocator(integer=True))
        if accuracy.lines:
            accuracy.legend(loc="lower right", title="paper's start unless said otherwise")
        _draw_bars(energy, compared, drawn, ENERGY)
        energy.set(title="Energy of all users", ylabel="energy of a run (J)")
        _draw_bars(time, compared, drawn, TIME)
        time.set(title="Time", ylabel="time of a run (s)")
        sign(figure, setting)
        return figure


def _draw_bars(axis: Axes, compared: Sequence[Row], drawn: Sequence[str], parts: dict[str, str]) -> None:
    """Stacked means of the parts by `drawn` rule, with the total of every seed over them."""
    top = 0.0
    places = [place for place, rule in enumerate(drawn) if where(compared, rule=rule)]
    bottom = np.zeros(len(places))
    for (name, words_), (colour, hatch) in zip(parts.items(), STACK, strict=False):
        means = np.array([np.mean(list(_sums(compared, drawn[place], (name,)).values())) for place in places])
        axis.bar(
            places, means, bottom=bottom, width=0.5, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4,
            label=words_,
        )  # fmt: skip
        bottom = bottom + means
    for place in places:
        totals = np.array(list(_sums(compared, drawn[place], tuple(parts)).values()))
        found = mean_interval(totals)
        axis.errorbar(
            place, found.value, yerr=[[found.value - found.low], [found.high - found.value]], color=INK, capsize=3,
            linewidth=1.2,
        )  # fmt: skip
        spread = np.linspace(0.3, 0.4, len(totals)) if len(totals) > 1 else np.full(1, 0.35)
        axis.plot(place + spread, totals, linestyle="", marker=".", markersize=5, color=look(drawn[place])[0])
        top = max(top, found.high, float(totals.max()))
    names = [look(rule)[2] for rule in drawn]
    for words_ in (", ", "central ", "default "):
        names = [name.replace(words_, words_.rstrip() + "\n") for name in names]
    axis.set_xticks(range(len(drawn)), names)
    axis.set(xlim=(-0.5, len(drawn) - 0.4), ylim=(0.0, 1.25 * top if top > 0.0 else 1.0))
    if places:
        axis.legend(loc="upper center", ncols=len(parts), columnspacing=1.2, handlelength=1.6)


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """2.2 points less accuracy, 14 % more energy of users and 26 % less time than central k-means."""
    compared = where(data, part="compared")
    last = max((int(row["round"]) for row in compared), default=0)
    points = _accuracy_gap(compared)
    energy, time = _total_change(compared, tuple(ENERGY)), _total_change(compared, tuple(TIME))
    return [
        Claim(
            figure="9",
            claim="Users who find their task themselves end slightly below central k-means.",
            paper="-2.2 points",
            quantity=f"clustering accuracy after {last} rounds, weight 0.2 minus central k-means, paired by seed",
            unit="points",
            estimate=points,
            verdict=judge(points, -2.2),
            reason=_accuracy_reason(data) + _default_reason(data),
            setting=setting,
        ),
        Claim(
            figure="9",
            claim="They need more energy of users.",
            paper="+14 %",
            quantity="energy of all users in a run, computing and sending, against central k-means, paired by seed",
            unit="%",
            estimate=energy,
            verdict=judge(energy, 14.0),
            reason=_parts_reason(compared, ENERGY, "J"),
            setting=setting,
        ),
        Claim(
            figure="9",
            claim="They need less time.",
            paper="-26 %",
            quantity="time of a run against central k-means, paired by seed",
            unit="%",
            estimate=time,
            verdict=judge(time, -26.0),
            reason=_parts_reason(compared, TIME, "s"),
            setting=setting,
        ),
    ]


def _final(data: Sequence[Row], rule: str) -> dict[int, float]:
    """Accuracy of every seed after the last round."""
    mine = where(data, rule=rule)
    last = max((int(row["round"]) for row in mine), default=0)
    return {int(row["seed"]): float(row["clustering_accuracy"]) for row in mine if row["round"] == last}


def _accuracy_gap(data: Sequence[Row]) -> Estimate | None:
    return difference(*paired(_final(data, OURS), _final(data, THEIRS)), scale=100.0)


def _sums(data: Sequence[Row], rule: str, names: Sequence[str]) -> dict[int, float]:
    """Columns summed over the rounds of every seed."""
    mine = where(data, rule=rule)
    seeds = sorted({int(row["seed"]) for row in mine})
    return {seed: float(sum(column(where(mine, seed=seed), name).sum() for name in names)) for seed in seeds}


def _total_change(compared: Sequence[Row], names: Sequence[str]) -> Estimate | None:
    return change(*paired(_sums(compared, OURS, names), _sums(compared, THEIRS, names)))


def _parts_reason(compared: Sequence[Row], parts: dict[str, str], unit: str) -> str:
    """Contribution of each part to the change, in per cent of the total of k-means; the parts add up to the change."""
    ours, theirs = (_sums(compared, rule, tuple(parts)) for rule in SHOWN)
    first, second = paired(ours, theirs)
    if len(first) == 0:
        return "There are no runs of both."
    gaps = {}
    for name, words_ in parts.items():
        mine, other = paired(_sums(compared, OURS, (name,)), _sums(compared, THEIRS, (name,)))
        gaps[words_] = mean_interval(100.0 * (mine - other) / second.mean())
    most = max(gaps, key=lambda name: abs(gaps[name].value))
    each = listed([f"{name} {_short(gap, '%')}" for name, gap in gaps.items()])
    served = [float(column(where(compared, rule=rule), "served").mean()) for rule in SHOWN]
    return (
        f"{quantity(float(first.mean()), unit)} in a run against {quantity(float(second.mean()), unit)}. By part, in"
        f" per cent of the total of k-means: {each}; {most} makes most of the difference. With k-means every user"
        " trains and sends a model more in every round but the first; our rule sends nothing for it, but computes on"
        f" all task models. Users served in a round: {served[0]:.1f} against {served[1]:.1f}."
    )


def _accuracy_reason(data: Sequence[Row]) -> str:
    """Levels of both rules, and the effect of noise on each on digits."""
    compared = where(data, part="compared")
    levels = [list(_final(compared, rule).values()) for rule in SHOWN]
    text = "" if not all(levels) else (
        f"Our rule ends at {100.0 * np.mean(levels[0]):.1f} %, k-means at {100.0 * np.mean(levels[1]):.1f} %."
    )  # fmt: skip
    quiet, noisy = (where(data, part="noise", factor=factor) for factor in FACTORS)
    lost = {rule: difference(*paired(_final(noisy, rule), _final(quiet, rule)), scale=100.0) for rule in SHOWN}
    clean, noised = _accuracy_gap(quiet), _accuracy_gap(noisy)
    seen = {THEIRS: "k-means, which sees noised uploads", OURS: "our rule, which works on clean data on the device"}
    for rule, name in seen.items():
        if lost[rule] is not None:
            text += f" On digits, privacy noise changes {name}, by {words(lost[rule], 'points')}."
    if clean is not None and noised is not None:
        text += (
            f" Our rule minus k-means is {_short(clean, 'points')} there without noise and {_short(noised, 'points')}"
            " with it."
        )
    return text.strip() or "There are no runs of both."


def _default_reason(data: Sequence[Row]) -> str:
    """Our rule with covey's start against k-means, which the verdict does not count; empty without such runs."""
    shown = [row for row in data if row["part"] != "noise"]
    gap = difference(*paired(_final(shown, DEFAULT_RULE), _final(shown, THEIRS)), scale=100.0)
    if gap is None:
        return ""
    return f" With covey's default start, which is not judged here, our rule minus k-means is {words(gap, 'points')}."


def _short(estimate: Estimate, unit: str) -> str:
    """An estimate without its number of seeds."""
    return words(estimate, unit).rsplit(", n = ", 1)[0]
