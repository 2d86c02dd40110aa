"""Privacy against accuracy: the cost of noise, with identified groups and with true groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from covey.evaluation import Estimate, mean_interval
from covey.figures.claims import Claim, judge_equal, judge_side, words
from covey.figures.definitions import difference
from covey.figures.draw import look, panels, sign
from covey.figures.plans import Work
from covey.figures.rows import Row, by_seed, column, paired, where
from covey.figures.shown.under_noise import finished_runs
from covey.report.palette import FAINT, MUTED, drawing_style

TITLE = "Privacy against accuracy"
CAPTION = (
    "Test accuracy after the last round on digits, over the largest epsilon of a user (less is more private), with the"
    " noise variance in multiples of the scenario's own at the bottom. Markers are means with 95 % intervals, dots"
    " seeds; dashed lines and hollow markers are runs without noise."
)
#: The two curves, and their names.
SHOWN = {"gradient_loss_0.2": "identities found", "oracle": "true groups given"}
_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def rows(work: Work) -> list[Row]:
    """One row per rule, noise factor and seed, after the last round; without noise, epsilon is missing."""
    found: list[Row] = []
    for first, cell, columns in finished_runs(work, SHOWN):
        spent = columns["epsilon_max"][-1]
        found.append(first | {
            "delta": cell.loaded.privacy.delta,
            "epsilon": float("nan") if first["factor"] == 0.0 or spent is None else spent,
            "accuracy": columns["accuracy"][-1], "clustering_accuracy": columns["clustering_accuracy"][-1],
            "served": float(np.mean(columns["served"])),
        })  # fmt: skip
    return found


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Accuracy over epsilon, one curve for identified and one for true groups; dashed lines are without noise."""
    with drawing_style():
        figure, axes = panels(1, width=7.6, height=5.0)
        axis = axes[0, 0]
        spent = [row for row in data if np.isfinite(row["epsilon"])]
        largest = max((float(row["epsilon"]) for row in spent), default=1.0)
        for index, (rule, name) in enumerate(SHOWN.items()):
            colour, marker, _ = look(rule)
            size = 8 if marker == "*" else 6
            own = where(spent, rule=rule)
            at = [where(own, factor=factor) for factor in _factors(own)]
            without = where(data, rule=rule, factor=0.0)
            places = [_middle(part) for part in at]
            if at:
                found = [mean_interval(column(part, "accuracy")) for part in at]
                axis.plot(column(own, "epsilon"), column(own, "accuracy"), ".", markersize=4, color=colour, alpha=0.45)
                axis.errorbar(
                    places, [e.value for e in found], yerr=_bars(found), color=colour, marker=marker, markersize=size,
                    capsize=3, linewidth=1.4, label=f"{name} (n = {max(e.n for e in found)})",
                )  # fmt: skip
            if without:
                values, x = column(without, "accuracy"), largest * (1.8 + 0.16 * index)
                level = mean_interval(values)
                axis.plot(np.full(len(values), x), values, ".", markersize=4, color=colour, alpha=0.45)
                axis.errorbar(
                    x, level.value, yerr=_bars([level]), color=colour, marker=marker, markersize=size,
                    markerfacecolor="white", capsize=3, linewidth=1.4,
                )  # fmt: skip
                axis.axhline(
                    level.value, color=colour, linestyle="--", linewidth=1.1, label=f"{name}, no noise (n = {level.n})"
                )
        marks = [(_middle(where(spent, factor=factor)), f"noise x {factor:g}") for factor in _factors(spent)]
        if where(data, factor=0.0):
            marks.append((largest * 1.88, "no noise"))
            axis.axvline(largest * 1.4, color=FAINT, linewidth=0.9)
        for x, text in marks:
            axis.text(
                x, -0.06, text, ha="center", va="center", fontsize=8.0, color=MUTED, zorder=4,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            )  # fmt: skip
        delta = f" at delta {data[0]['delta']:g}" if data else ""
        axis.set(title=TITLE, xlabel=f"largest epsilon of a user after the last round{delta} (log scale)")
        axis.set(ylabel="test accuracy", ylim=(-0.11, 1.03), xscale="log")
        if marks:
            ticks = [tick for tick in _TICKS if tick <= 1.3 * largest]
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
            axis.set_xlim(min(x for x, _ in marks) / 1.4, largest * 2.3)
            figure.legend(loc="outside lower center", ncols=2)
        sign(figure, setting)
        return figure


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """The cost of the scenario's noise in accuracy, and the gain from knowing the true groups."""
    rounds = max((int(row["rounds"]) for row in data), default=0)
    found: list[Claim] = []
    for rule, name in SHOWN.items():
        cost = _cost(data, rule, 1.0)
        found.append(
            Claim(
                figure="ours",
                claim=f"The scenario's own noise costs no accuracy, {name}.",
                paper="own result",
                quantity=f"accuracy after {rounds} rounds at the scenario's noise minus without noise, {name}, paired"
                " by seed",
                unit="points",
                estimate=cost,
                verdict=judge_equal(cost),
                reason=_by_factor(data, rule),
                setting=setting,
            )
        )
    gap = _gap(data, 1.0)
    ahead, theirs = paired(_final(data, "oracle", 1.0), _final(data, "gradient_loss_0.2", 1.0))
    found.append(
        Claim(
            figure="ours",
            claim="Being given the true groups raises accuracy at the scenario's noise.",
            paper="own result",
            quantity=f"accuracy after {rounds} rounds at the scenario's noise, true groups given minus identities"
            " found, paired by seed",
            unit="points",
            estimate=gap,
            verdict=judge_side(gap, 1),
            reason=f"True groups are ahead in {int((ahead > theirs).sum())} of {len(ahead)} runs; where users find"
            f" their groups, {_share(data)} of them are right. By noise factor: {_gaps(data)}. Users served per round,"
            f" found and given: {_served(data, 'gradient_loss_0.2')} and {_served(data, 'oracle')}.",
            setting=setting,
        )
    )
    return found


def _middle(data: Sequence[Row]) -> float:
    """Geometric mean of the epsilons."""
    return float(np.exp(np.log(column(data, "epsilon")).mean()))


def _bars(found: Sequence[Estimate]) -> list[list[float]]:
    return [[e.value - e.low for e in found], [e.high - e.value for e in found]]


def _final(data: Sequence[Row], rule: str, factor: float) -> dict[int, float]:
    return by_seed(where(data, rule=rule, factor=factor), "accuracy")


def _factors(data: Sequence[Row]) -> list[float]:
    return sorted({float(row["factor"]) for row in data})


def _cost(data: Sequence[Row], rule: str, factor: float) -> Estimate | None:
    """Accuracy with noise minus without."""
    return difference(*paired(_final(data, rule, factor), _final(data, rule, 0.0)), scale=100.0)


def _gap(data: Sequence[Row], factor: float) -> Estimate | None:
    """Accuracy with true groups minus with identified groups."""
    both = paired(_final(data, "oracle", factor), _final(data, "gradient_loss_0.2", factor))
    return difference(*both, scale=100.0)


def _name(factor: float) -> str:
    return "no noise" if factor == 0.0 else f"{factor:g} times"


def _by_factor(data: Sequence[Row], rule: str) -> str:
    """Accuracy without noise, and the cost and epsilon of every noise factor."""
    without = list(_final(data, rule, 0.0).values())
    parts = []
    for factor in (factor for factor in _factors(data) if factor > 0.0):
        cost, spent = _cost(data, rule, factor), column(where(data, rule=rule, factor=factor), "epsilon")
        if cost is not None and np.isfinite(spent).all():
            parts.append(
                f"{_name(factor)} the noise variance (mean epsilon {spent.mean():.2g}) {words(cost, 'points')}"
            )
    if not without or not parts:
        return "No data."
    return f"Accuracy without noise {100.0 * np.mean(without):.1f} %; against it, {'; '.join(parts)}."


def _gaps(data: Sequence[Row]) -> str:
    found = [(factor, _gap(data, factor)) for factor in _factors(data)]
    return "; ".join(f"{_name(f)} {words(e, 'points')}" for f, e in found if e is not None) or "no data"


def _share(data: Sequence[Row]) -> str:
    values = column(where(data, rule="gradient_loss_0.2", factor=1.0), "clustering_accuracy")
    return f"{100.0 * values.mean():.1f} %" if len(values) else "an unknown share"


def _served(data: Sequence[Row], rule: str) -> str:
    values = column(where(data, rule=rule, factor=1.0), "served")
    return f"{values.mean():.1f}" if len(values) else "no data"
