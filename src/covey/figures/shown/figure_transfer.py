"""Transfer of policies trained at one network size to other sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from covey.evaluation import Estimate, mean_interval
from covey.figures.claims import Claim, judge_side
from covey.figures.draw import look, panels, points, sign
from covey.figures.kinds import Played, Training
from covey.figures.plans import FIGURES, Work
from covey.figures.rows import Floats, Row, column, where
from covey.report.palette import MUTED, drawing_style

TITLE = "Policies in networks of other sizes"
CAPTION = (
    "DPVD policies trained at one size, each played on the same layouts of every size: reward against greedy (nearest,"
    " which minds no rules, is left out there), violating users, and time of one decision of all stations (learned"
    " policies decide for several layouts at once, counted per layout). Markers are means with 95 % intervals over"
    " policies, dots policies."
)
#: References and learned policies, and their names.
NAMES = {
    "nearest": "nearest",
    "coverage": "coverage",
    "greedy": "greedy",
    "dpvd": "DPVD, alone",
    "dpvd_guarded": "DPVD, guarded",
}
#: Users, stations.
Size = tuple[int, int]


def rows(work: Work) -> list[Row]:
    """One row per size, policy and layout; references have no seed."""
    found: list[Row] = []
    for cell in FIGURES["transfer"](work):
        if not isinstance(cell, Played) or not work.store.has(cell):
            continue
        network, values = cell.loaded.network, work.store[cell]
        policy, seed, home_users, home_stations = str(cell.policy), math.nan, math.nan, math.nan
        if isinstance(cell.policy, Training):
            policy, seed = "dpvd" if cell.way == "alone" else "dpvd_guarded", cell.policy.seed
            home_users, home_stations = cell.policy.loaded.network.users, cell.policy.loaded.network.stations
        for index, reward in enumerate(values["reward"]):
            found.append({
                "users": network.users, "stations": network.stations, "blocks": network.blocks,
                "side_m": network.area_m[0], "policy": policy, "seed": seed,
                "trained_users": home_users, "trained_stations": home_stations,
                "layout": cell.seed + index, "reward": reward, "violators": values["violators"][index],
                "served": values["served"][index], "decision_ms": values["decision_ms"],
            })  # fmt: skip
    return found


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Reward against greedy, violators and decision time over sizes."""
    with drawing_style():
        figure, axes = panels(3, width=11.0, height=4.6)
        reward, violators, decision = axes[0]
        sizes = sizes_of(data)
        seen: dict[Axes, list[float]] = {axis: [] for axis in axes[0]}
        for place, size in enumerate(sizes):
            for index, policy in enumerate(NAMES):
                shown = {
                    violators: _per_policy(data, size, policy, "violators"),
                    decision: _per_policy(data, size, policy, "decision_ms"),
                }
                if policy not in ("nearest", "greedy"):
                    shown[reward] = against_greedy(data, size, policy)
                for axis, values in shown.items():
                    _mark(axis, place + 0.15 * (index - 2), values, policy)
                    seen[axis] += values.tolist()
        for policy, name in NAMES.items():
            own = where(data, policy=policy)
            if own:
                count = len({row["seed"] for row in own}) if policy.startswith("dpvd") else 0
                colour, marker, _ = look(policy)
                words = f"{name} (n = {count})" if count else name
                decision.plot([], [], color=colour, marker=marker, linestyle="", markersize=6, label=words)
        reward.axhline(0.0, color=MUTED, linewidth=0.9)
        # Limited to the dots: intervals over few policies would dominate the axis.
        low, high = min(seen[reward], default=0.0), max(seen[reward], default=0.0)
        reward.set_yscale("symlog", linthresh=10.0, linscale=2.0)
        reward.set_ylim(min(1.5 * low, -10.0), max(1.5 * high, 10.0))
        violators.set_yscale("symlog", linthresh=1.0)
        violators.set_ylim(-0.2, max(2.0 * max(seen[violators], default=0.0), 1.0))
        decision.set_yscale("log")
        decision.set_ylim(min(seen[decision], default=1.0) / 1.5, max(seen[decision], default=1.0) * 1.5)
        decision.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        reward.set(title=TITLE, ylabel="reward against greedy, % (log beyond 10)")
        violators.set(title="Violations", ylabel="violating users an episode (log above 1)")
        decision.set(title="Decision time", ylabel="one decision, ms (log scale)")
        for axis in axes[0]:
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
            axis.minorticks_off()
            axis.set(xlabel="users / stations", xlim=(-0.5, max(len(sizes), 1) - 0.5))
            axis.set_xticks(range(len(sizes)), [f"{users:,}\n/ {stations}" for users, stations in sizes])
            for place in range(len(sizes) - 1):
                axis.axvline(place + 0.5, color="#E6E6E6", linewidth=0.7)
        if sizes:
            figure.legend(loc="outside lower center", ncols=5)
        sign(figure, setting)
        return figure


def _mark(axis: Axes, x: float, values: Floats, policy: str) -> None:
    if len(values) and policy.startswith("dpvd"):
        points(axis, x, values, policy, label=False)
    elif len(values):
        colour, marker, _ = look(policy)
        axis.plot(x, values.mean(), marker=marker, color=colour, markersize=6, linestyle="")


def sizes_of(data: Sequence[Row]) -> list[Size]:
    """Users and stations of all networks, smallest first."""
    return sorted({(int(row["users"]), int(row["stations"])) for row in data})


def _per_policy(data: Sequence[Row], size: Size, policy: str, name: str) -> Floats:
    """(n,) means over layouts, one per trained policy; one for a reference."""
    own = where(data, users=size[0], stations=size[1], policy=policy)
    if not policy.startswith("dpvd"):
        return column(own, name).mean(keepdims=True) if own else np.zeros(0)
    seeds = sorted({int(row["seed"]) for row in own})
    return np.array([column(where(own, seed=seed), name).mean() for seed in seeds])


def against_greedy(data: Sequence[Row], size: Size, policy: str) -> Floats:
    """(n,) reward relative to greedy, in per cent of greedy's, one value per trained policy."""
    greedy = _per_policy(data, size, "greedy", "reward")
    if not len(greedy):
        return np.zeros(0)
    return 100.0 * (_per_policy(data, size, policy, "reward") - greedy) / np.abs(greedy)


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """Whether guarded DPVD, and DPVD alone, earn more than greedy at every size."""
    homes = {(row["trained_users"], row["trained_stations"]) for row in data if np.isfinite(row["trained_users"])}
    home = "".join(f" trained with {users} users and {stations} stations" for users, stations in sorted(homes))
    found = []
    for policy, name in (("dpvd_guarded", "Guarded DPVD"), ("dpvd", "DPVD alone")):
        for size in sizes_of(data):
            values = against_greedy(data, size, policy)
            more: Estimate | None = mean_interval(values) if len(values) else None
            found.append(
                Claim(
                    figure="ours",
                    claim=f"{name}{home} earns more than greedy with {size[0]:,} users and {size[1]} stations.",
                    paper="own result",
                    quantity="reward minus greedy's in per cent of it, mean over layouts, one value per policy",
                    unit="%",
                    estimate=more,
                    verdict=judge_side(more, 1),
                    reason=_reason(data, size, policy),
                    setting=setting,
                )
            )
    return found


def _reason(data: Sequence[Row], size: Size, policy: str) -> str:
    """The spread over policies and layouts, served users, and violations."""
    here = where(data, users=size[0], stations=size[1])
    own, greedy = where(here, policy=policy), where(here, policy="greedy")
    if not own or not greedy:
        return f"No data of {NAMES[policy] if greedy else 'greedy'} at this size."
    theirs = {row["layout"]: float(row["reward"]) for row in greedy}
    level = sum(row["reward"] >= theirs.get(row["layout"], np.inf) for row in own)
    values = against_greedy(data, size, policy)
    return (
        f"Policies range from {values.min():+.1f} to {values.max():+.1f} %; at or above greedy in {level} of {len(own)}"
        f" episodes. Served per round {column(own, 'served').mean():.1f}, by greedy"
        f" {column(greedy, 'served').mean():.1f}; {column(own, 'violators').mean():.2f} violators an episode, by greedy"
        f" {column(greedy, 'violators').mean():.2f}."
    )
