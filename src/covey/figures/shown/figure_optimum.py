"""Distance from the optimum: every policy against the best of all joint choices in a small network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covey.evaluation import mean_interval
from covey.figures.claims import Claim, judge_side
from covey.figures.definitions import difference
from covey.figures.draw import LOOKS, panels, sign
from covey.figures.kinds import Optimum
from covey.figures.plans import FIRST_LAYOUT, REFERENCES, SMALL, Work
from covey.figures.rows import Floats, Row, column, paired, where
from covey.report.palette import INK, MUTED, drawing_style

TITLE = "Distance from the optimum"
CAPTION = (
    "A network so small that every joint choice can be tried, a choice being worth the round's reward with its loss"
    " counted for all rounds left: left and middle compare choices with the best one in the states a policy gets into,"
    " right whole episodes with one that always takes the best. Markers are means with 95 % intervals, dots layouts,"
    " policies are sorted by the left measure."
)
#: Learned policies: method, way and name; the others are references.
LEARNED = {
    "dpvd_guarded": ("dpvd", "guarded", "DPVD guarded"),
    "dpvd": ("dpvd", "alone", "DPVD alone"),
    "iql": ("iql", "alone", "IQL alone"),
    "qmix": ("qmix", "alone", "QMIX alone"),
}
NAMES = {name: name.replace("_", " ") for name in REFERENCES} | {"exact": "exact sample maximum"}
NAMES |= {policy: name for policy, (_, _, name) in LEARNED.items()}
#: A measure: one number per seed, from all rows and the name of a policy.
Measure = Callable[[Sequence[Row], str], dict[int, float]]
_TICKS = (-100.0, -10.0, -5.0, 0.0, 5.0, 10.0, 30.0, 100.0, 1000.0, 10_000.0)


def rows(work: Work) -> list[Row]:
    """One row per policy and layout: totals over the rounds of the episode."""
    found: list[Row] = []
    for policy in ("best", *NAMES):
        for seed in range(work.seeds):
            cell = _cell(work, policy, seed)
            if cell is None or not work.store.has(cell):
                continue
            columns = {name: np.array(values) for name, values in work.store[cell]["columns"].items()}
            best, own = columns["best"], columns["own"]
            found.append({
                "policy": policy, "seed": seed, "rounds": len(best), "regret": float((best - own).sum()),
                "best_size": float(np.abs(best).sum()), "best_over_nobody": float((best - columns["nobody"]).sum()),
                "optimal_rounds": int((own >= best - 1e-9 * np.abs(best)).sum()),
                "reward": float(columns["reward"].sum()), "violators": float(columns["violators"].sum()),
            })  # fmt: skip
    return found


def _cell(work: Work, policy: str, seed: int) -> Optimum | None:
    if policy not in LEARNED:
        return Optimum(work.scale.scenario, SMALL, FIRST_LAYOUT + seed, policy=policy)
    method, way, _ = LEARNED[policy]
    trained = work.training(method, seed, overrides=SMALL)
    if trained is None:
        return None
    return Optimum(work.scale.scenario, SMALL, FIRST_LAYOUT + seed, policy=trained, way=way)  # type: ignore[arg-type]


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Regret, share of optimal choices and reward lost, one line per policy, sorted by mean regret."""
    with drawing_style(**{"axes.grid.axis": "both"}):
        figure, axes = panels(3, width=10.4, height=4.6)
        regret, optimal, lost = axes[0]
        order = sorted(
            (policy for policy in NAMES if where(data, policy=policy)), key=lambda policy: _mean(regrets(data, policy))
        )
        for axis, measure in ((regret, regrets), (optimal, optimal_shares), (lost, rewards_lost)):
            found = {policy: np.array(list(measure(data, policy).values())) for policy in order}
            for place, policy in enumerate(order):
                if len(found[policy]):
                    _dots(axis, place, found[policy], policy)
            if axis is not optimal:
                _percent(axis, np.concatenate([np.zeros(1), *found.values()]))
            axis.set_ylim(len(order) - 0.4, -0.6)
            names = [_label(data, policy) if axis is regret else "" for policy in order]
            axis.set_yticks(range(len(order)), names)
        optimal.set_xlim(-4.0, 104.0)
        regret.set(title=TITLE, xlabel="worth lost, % (log above 10)")
        optimal.set(title="Best choice taken", xlabel="rounds with a best choice, %")
        lost.set(title="Over the whole episode", xlabel="reward lost, % (log above 10)")
        sign(figure, setting)
        return figure


def _percent(axis: Axes, values: Floats) -> None:
    """An axis that is linear up to 10 % and logarithmic beyond, as wide as the dots; wider intervals are clipped."""
    low, high = float(values.min()), float(values.max())
    axis.set_xscale("symlog", linthresh=10.0, linscale=2.0)
    axis.axvline(0.0, color=MUTED, linewidth=0.9)
    ticks = [tick for tick in _TICKS if low <= tick <= max(high, 5.0)]
    axis.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlim(1.3 * low - 0.6, max(1.5 * high, 6.0))


def _dots(axis: Axes, place: int, values: Floats, policy: str) -> None:
    """One row per policy: mean with its 95 % interval, and every layout as a faint dot around it."""
    colour, marker, _ = LOOKS.get(policy, (INK, "o", ""))
    found = mean_interval(values)
    spread = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else np.zeros(1)
    axis.plot(values, place + spread, linestyle="", marker=".", markersize=4, color=colour, alpha=0.45)
    axis.errorbar(
        found.value, place, xerr=[[found.value - found.low], [found.high - found.value]], color=colour, marker=marker,
        markersize=6, capsize=3, linewidth=1.4,
    )  # fmt: skip


def regrets(data: Sequence[Row], policy: str) -> dict[int, float]:
    """By seed, the regret of an episode, in per cent of the absolute value of the best choices."""
    return {int(r["seed"]): 100.0 * float(r["regret"] / r["best_size"]) for r in where(data, policy=policy)}


def optimal_shares(data: Sequence[Row], policy: str) -> dict[int, float]:
    """By seed, the share of rounds with an optimal choice, in per cent."""
    return {int(r["seed"]): 100.0 * float(r["optimal_rounds"] / r["rounds"]) for r in where(data, policy=policy)}


def rewards_lost(data: Sequence[Row], policy: str) -> dict[int, float]:
    """By seed, the reward lost against always choosing best, in per cent; only seeds with both."""
    best = {int(r["seed"]): float(r["reward"]) for r in where(data, policy="best")}
    own = {int(r["seed"]): float(r["reward"]) for r in where(data, policy=policy)}
    return {seed: 100.0 * (best[seed] - own[seed]) / abs(best[seed]) for seed in sorted(own.keys() & best.keys())}


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """Whether DPVD chooses closer to the optimum than greedy and than IQL, and loses less of the episode's reward."""
    regret = ("worth lost against the best choice, in per cent of its size", regrets)
    lost = ("reward lost against always the best choice, in per cent of its size", rewards_lost)

    def claim(text: str, first: str, second: str, measure: tuple[str, Measure]) -> Claim:
        quantity, values = measure
        found = difference(*paired(values(data, first), values(data, second)))
        return Claim(
            figure="ours",
            claim=text,
            paper="own result",
            quantity=f"{quantity}, {NAMES[first]} minus {NAMES[second]}, paired by layout",
            unit="points",
            estimate=found,
            verdict=judge_side(found, -1),
            reason=f"{_side_by_side(data, first, second)} {_order(data, values)}",
            setting=setting,
        )

    return [
        claim("Guarded DPVD chooses closer to the optimum than greedy.", "dpvd_guarded", "greedy", regret),
        claim("Guarded DPVD loses less of an episode's reward than greedy.", "dpvd_guarded", "greedy", lost),
        claim("DPVD alone chooses closer to the optimum than greedy.", "dpvd", "greedy", regret),
        claim("DPVD alone chooses closer to the optimum than IQL alone.", "dpvd", "iql", regret),
    ]


def _side_by_side(data: Sequence[Row], first: str, second: str) -> str:
    """Attained share of the possible gain, share of optimal choices and violations of two policies."""
    one, other = where(data, policy=first), where(data, policy=second)
    if not one or not other:
        return f"No data of {NAMES[second] if one else NAMES[first]}."
    gained, optimal, violators = [], [], []
    for own in (one, other):
        gained.append(f"{100.0 - 100.0 * _total(own, 'regret') / _total(own, 'best_over_nobody'):.0f} %")
        optimal.append(f"{100.0 * _total(own, 'optimal_rounds') / _total(own, 'rounds'):.0f} %")
        violators.append(f"{_total(own, 'violators') / len(own):.1f}")
    return (
        f"Of what the best choices gain over serving nobody, {NAMES[first]} gets {gained[0]} and {NAMES[second]}"
        f" {gained[1]}; they take a best choice in {' and '.join(optimal)} of rounds, with {' and '.join(violators)}"
        " violators an episode."
    )


def _order(data: Sequence[Row], values: Measure) -> str:
    """All policies, sorted by the mean of a measure."""
    found = {policy: _mean(own) for policy in NAMES if (own := values(data, policy))}
    listed = [f"{NAMES[policy]} {found[policy]:.1f} %" for policy in sorted(found, key=lambda policy: found[policy])]
    return f"Means: {', '.join(listed)}." if listed else "No data."


def _total(data: Sequence[Row], name: str) -> float:
    return float(column(data, name).sum())


def _mean(values: dict[int, float]) -> float:
    return float(np.mean(list(values.values())))


def _label(data: Sequence[Row], policy: str) -> str:
    return f"{NAMES[policy]} (n = {len(where(data, policy=policy))})"
