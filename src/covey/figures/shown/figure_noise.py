"""Clustering rules under increasing noise, and the best gradient weight at each noise level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from covey.evaluation import Estimate
from covey.figures.claims import Claim, judge_side, words
from covey.figures.definitions import difference
from covey.figures.draw import look, panels, points, sign
from covey.figures.plans import Work
from covey.figures.rows import Row, by_seed, paired, where
from covey.figures.shown.under_noise import finished_runs
from covey.report.palette import INK, MUTED, drawing_style

TITLE = "Clustering rules under noise"
CAPTION = (
    "Clustering accuracy after the last round on digits, over the noise variance in multiples of the scenario's own:"
    " every rule on the left (ringed: highest mean), paired differences to weight 0.2 on the right. Markers are means"
    " with 95 % intervals, dots seeds."
)
SHOWN = ("loss", "gradient_loss_0.2", "gradient_loss_0.5", "printed_sign_0.2", "kmeans")
#: The rule of the right panel and of the claims, and the rules it is compared with there.
OURS = "gradient_loss_0.2"
AGAINST = ("gradient_loss_0.5", "loss")


def rows(work: Work) -> list[Row]:
    """One row per rule, noise factor and seed, after the last round."""
    names = ("clustering_accuracy", "adjusted_rand_index", "accuracy")
    return [first | {name: columns[name][-1] for name in names} for first, _, columns in finished_runs(work, SHOWN)]


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Every rule over the noise factor; on the right, weight 0.2 against weight 0.5 and against the loss alone."""
    with drawing_style():
        figure, axes = panels(2, width=10.4, height=5.0)
        every, versus = axes[0]
        every.get_gridspec().set_width_ratios((1.6, 1.0))
        factors = _factors(data)
        for place, factor in enumerate(factors):
            best = _best(data, factor)
            for index, rule in enumerate(SHOWN):
                values = np.array(list(_final(data, rule, factor).values()))
                if not len(values):
                    continue
                x = place + 0.15 * (index - 2)
                points(every, x, values, rule, label=False)
                if rule in best:
                    every.plot(x, values.mean(), "o", markersize=12, markerfacecolor="none", markeredgecolor=INK)
            for index, rule in enumerate(AGAINST):
                ours, theirs = paired(_final(data, OURS, factor), _final(data, rule, factor))
                if len(ours):
                    points(versus, place + 0.24 * (index - 0.5), 100.0 * (ours - theirs), rule, label=False)
        for rule in SHOWN:
            count = len({row["seed"] for row in where(data, rule=rule)})
            if count:
                colour, marker, name = look(rule)
                every.plot([], [], color=colour, marker=marker, markersize=6, label=f"{name} (n = {count})")
        if factors:
            every.plot([], [], "o", markersize=12, markerfacecolor="none", markeredgecolor=INK, label="highest mean")
            figure.legend(loc="outside lower center", ncols=3)
        versus.axhline(0.0, color=MUTED, linewidth=0.9)
        every.set(title=TITLE, ylabel="clustering accuracy", ylim=(0.2, 1.04))
        versus.set(title="Weight 0.2 minus the rule", ylabel="clustering accuracy, difference in points")
        for axis in (every, versus):
            axis.set(xlabel="noise variance, multiple of the scenario's own", xlim=(-0.55, len(factors) - 0.45))
            axis.set_xticks(range(len(factors)), [_name(factor) for factor in factors])
            for place in range(len(factors) - 1):
                axis.axvline(place + 0.5, color="#E6E6E6", linewidth=0.7)
        sign(figure, setting)
        return figure


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """Weight 0.2 against loss only, weight 0.5 and k-means at the scenario's noise, and against 0.5 at the most."""
    rounds = max((int(row["rounds"]) for row in data), default=0)
    factors = _factors(data)
    most = factors[-1] if factors else 1.0

    def claim(text: str, rule: str, factor: float, reason: str) -> Claim:
        found = _points(data, OURS, rule, factor)
        return Claim(
            figure="ours",
            claim=text,
            paper="own result",
            quantity=f"clustering accuracy after {rounds} rounds at {factor:g} times the noise variance, weight 0.2"
            f" minus {look(rule)[2]}, paired by seed",
            unit="points",
            estimate=found,
            verdict=judge_side(found, 1),
            reason=reason,
            setting=setting,
        )

    by_factor = {rule: _over_factors(data, OURS, rule) for rule in ("loss", "gradient_loss_0.5", "kmeans")}
    return [
        claim(
            "Gradient and loss with weight 0.2 find more of the groups than the loss alone, at the scenario's noise.",
            "loss",
            1.0,
            f"Weight 0.2 minus loss only by noise factor: {by_factor['loss']}. Highest mean: {_leaders(data)}.",
        ),
        claim(
            "Weight 0.2 ends higher than weight 0.5 at the scenario's noise.",
            "gradient_loss_0.5",
            1.0,
            f"Weight 0.2 minus 0.5 by noise factor: {by_factor['gradient_loss_0.5']}.",
        ),
        claim(
            f"Weight 0.2 ends higher than weight 0.5 at the most noise tried, {most:g} times the scenario's variance.",
            "gradient_loss_0.5",
            most,
            f"Both weights end with the same value in {_same(data, OURS, 'gradient_loss_0.5', most)} at this noise and"
            f" in {_same(data, OURS, 'gradient_loss_0.5', 1.0)} at the scenario's own.",
        ),
        claim(
            "Weight 0.2 finds more of the groups than central k-means at the scenario's noise.",
            "kmeans",
            1.0,
            f"Weight 0.2 minus k-means by noise factor: {by_factor['kmeans']}. Means of k-means:"
            f" {_means(data, 'kmeans')}; of weight 0.2: {_means(data, OURS)}.",
        ),
    ]


def _factors(data: Sequence[Row]) -> list[float]:
    return sorted({float(row["factor"]) for row in data})


def _final(data: Sequence[Row], rule: str, factor: float) -> dict[int, float]:
    return by_seed(where(data, rule=rule, factor=factor), "clustering_accuracy")


def _points(data: Sequence[Row], first: str, second: str, factor: float) -> Estimate | None:
    return difference(*paired(_final(data, first, factor), _final(data, second, factor)), scale=100.0)


def _name(factor: float) -> str:
    return "no noise" if factor == 0.0 else f"{factor:g}"


def _over_factors(data: Sequence[Row], first: str, second: str) -> str:
    """The paired difference at every factor."""
    found = [(factor, _points(data, first, second, factor)) for factor in _factors(data)]
    return "; ".join(f"{_name(factor)}: {words(e, 'points')}" for factor, e in found if e is not None) or "no data"


def _means(data: Sequence[Row], rule: str) -> str:
    found = [(factor, list(_final(data, rule, factor).values())) for factor in _factors(data)]
    return "; ".join(f"{_name(f)}: {100.0 * np.mean(v):.1f} %" for f, v in found if v) or "no data"


def _best(data: Sequence[Row], factor: float) -> list[str]:
    """The rules with the highest mean at a factor, over the common seeds of all rules with data; several if tied."""
    final = {rule: values for rule in SHOWN if (values := _final(data, rule, factor))}
    seeds = set.intersection(*(set(values) for values in final.values())) if final else set()
    if not seeds:
        return []
    means = {rule: float(np.mean([values[seed] for seed in seeds])) for rule, values in final.items()}
    return [rule for rule, mean in means.items() if mean >= max(means.values()) - 1e-9]


def _leaders(data: Sequence[Row]) -> str:
    found = [(factor, _best(data, factor)) for factor in _factors(data)]
    return "; ".join(f"{_name(f)}: {' and '.join(look(r)[2] for r in best)}" for f, best in found if best) or "no data"


def _same(data: Sequence[Row], first: str, second: str, factor: float) -> str:
    ours, theirs = paired(_final(data, first, factor), _final(data, second, factor))
    return f"{int((np.abs(ours - theirs) < 1e-9).sum())} of {len(ours)} runs"
