"""Fig. 8: the leakage weight against loss and noise, on real rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from covey.evaluation import Estimate
from covey.figures.claims import Claim, judge, judge_side, words
from covey.figures.definitions import change
from covey.figures.draw import legend_above, look, panels, points, sign
from covey.figures.kinds import RealRun
from covey.figures.plans import FIRST_LAYOUT, Work, leakage_of
from covey.figures.rows import Row, by_seed, column, paired, where
from covey.report.palette import drawing_style

TITLE = "Leakage weight against loss and noise"
CAPTION = (
    "Real rounds under policies that were trained on the surrogate for each leakage weight; stations decide alone."
    " Noise is the variance of all uploads of a run added up, divided by the largest mean over the sweep; it falls when"
    " fewer users take part. Markers are means with 95 % intervals, dots seeds."
)
METHODS = ("dpvd", "iql")


def rows(work: Work) -> list[Row]:
    """One row per leakage weight, method and seed."""
    scenario, found = work.scale.scenario, []
    own = RealRun(scenario).loaded.reward.leakage_weight
    for factor in work.scale.leakage_factors:
        overrides = leakage_of(scenario, factor)
        for method in METHODS:
            for seed in range(work.seeds):
                trained = work.training(method, seed, overrides=overrides)
                if trained is None:
                    continue
                cell = RealRun(scenario, overrides, FIRST_LAYOUT + seed, policy=trained)
                if work.store.has(cell):
                    columns = work.store[cell]["columns"]
                    found.append({
                        "leakage_weight": own * factor,
                        "method": method,
                        "seed": seed,
                        "loss": columns["loss"][-1],
                        "noise_variance": float(np.sum(columns["noise_variance"])),
                        "leakage": float(np.sum(columns["leakage"])),
                        "served": float(np.mean(columns["served"])),
                        "violators": float(np.mean(columns["violators"])),
                        "clustering_accuracy": columns["clustering_accuracy"][-1],
                    })  # fmt: skip
    return found


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Loss, normalised noise and served users over the weight."""
    weights = sorted({float(row["leakage_weight"]) for row in data})
    most = max(
        (float(column(where(data, leakage_weight=w, method=m), "noise_variance").mean())
         for w in weights for m in METHODS if where(data, leakage_weight=w, method=m)),
        default=1.0,
    ) or 1.0  # fmt: skip
    shown = (
        ("loss", 1.0, "Loss", "training loss after the last round"),
        ("noise_variance", most, "Noise", "normalised noise"),
        ("served", 1.0, "Who takes part", "served users per round"),
    )
    with drawing_style():
        figure, axes = panels(3, width=12.0, height=4.0)
        for axis, (name, scale, title, label) in zip(axes[0], shown, strict=True):
            for index, method in enumerate(METHODS):
                means = []
                for place, weight in enumerate(weights):
                    values = column(where(data, leakage_weight=weight, method=method), name) / scale
                    if len(values):
                        x = place + 0.24 * (index - 0.5)
                        points(axis, x, values, method, label=place == 0)
                        means.append((x, float(values.mean())))
                if means:
                    axis.plot(*zip(*means, strict=True), color=look(method)[0], linewidth=0.8, alpha=0.6)
            axis.set_xticks(range(len(weights)), [f"{weight:.3g}" for weight in weights])
            axis.set(title=title, xlabel="leakage weight", ylabel=label)
        for axis in axes[0, 1:]:
            axis.set_ylim(bottom=0.0)
        legend_above(figure, axes[0, 0])
        sign(figure, setting)
        return figure


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """Noise falls and loss rises with the weight; both are lower than IQL's at the largest."""
    weights = sorted({float(row["leakage_weight"]) for row in data})
    low, high = (weights[0], weights[-1]) if weights else (0.0, 0.0)
    value = {
        (name, weight, method): by_seed(where(data, leakage_weight=weight, method=method), name)
        for name in ("loss", "noise_variance", "served")
        for weight in weights
        for method in METHODS
    }

    def of(name: str, weight: float, method: str) -> dict[int, float]:
        return value.get((name, weight, method), {})

    def over_weight(name: str, method: str = "dpvd") -> Estimate | None:
        return change(*paired(of(name, high, method), of(name, low, method)))

    def against_iql(name: str) -> Estimate | None:
        return change(*paired(of(name, high, "dpvd"), of(name, high, "iql")))

    served = "; ".join(
        f"{look(method)[2]}: "
        + ", ".join(f"{_mean(of('served', weight, method)):.1f} at {weight:.3g}" for weight in weights)
        for method in METHODS
    )
    took_part = f"Users served per round, {served}."
    noise, loss = over_weight("noise_variance"), over_weight("loss")
    less, quieter = against_iql("loss"), against_iql("noise_variance")
    between = f"from weight {low:.3g} to {high:.3g}"
    return [
        Claim("8", "Noise falls as the leakage weight grows.", "falls", f"change of DPVD's noise {between}", "%", noise,
              judge_side(noise, -1), f"{took_part} IQL: {words(over_weight('noise_variance', 'iql'), '%')}.", setting),
        Claim("8", "The loss rises as the leakage weight grows.", "rises", f"change of DPVD's loss {between}", "%",
              loss, judge_side(loss, 1), f"{took_part} IQL: {words(over_weight('loss', 'iql'), '%')}.", setting),
        Claim("8", f"At the largest weight ({high:.3g}) DPVD's loss is lower than IQL's.", "-24 %",
              "change of the training loss after the last real round, DPVD against IQL", "%", less, judge(less, -24.0),
              took_part, setting),
        Claim("8", f"At the largest weight ({high:.3g}) DPVD's noise is lower than IQL's.", "-18 %",
              "change of the noise of a run, DPVD against IQL", "%", quieter, judge(quieter, -18.0),
              took_part, setting),
    ]  # fmt: skip


def _mean(values: dict[int, float]) -> float:
    return float(np.mean(list(values.values()))) if values else float("nan")
