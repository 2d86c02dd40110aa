"""Fig. 5: progressive against fixed penalty, both scored with one reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from covey.figures.claims import Claim, judge, words
from covey.figures.definitions import (
    change,
    convergence_epoch,
    difference,
    final_reward,
    smoothed,
    variance_change,
)
from covey.figures.draw import curves, keep_to, legend_above, panels, sign
from covey.figures.kinds import Played, Training
from covey.figures.plans import FIRST_LAYOUT, Work
from covey.figures.rows import Floats, Row, by_seed, column, grid, paired, where
from covey.report.palette import drawing_style

TITLE = "Progressive and fixed penalty"
CAPTION = (
    "Both are scored with the reward of the progressive penalty, whatever they learn from (errata E45). Upper row: that"
    " reward, mean of the last ten epochs; lower row: violating users of an episode. Lines are means over seeds, bands"
    " 95 % intervals, faint lines seeds."
)
OURS, THEIRS = "covey", "paper"
METHODS = ("dpvd", "dpvd_fixed")
_COLUMNS = ("reward", "reward_without_penalty", "violators", "violating_rounds", "served")


def rows(work: Work) -> list[Row]:
    """One row per loop, penalty, seed and epoch; epoch 0 is the trained policy on held-out layouts, deciding alone."""
    found: list[Row] = []
    for loop in (OURS, THEIRS):
        for method in METHODS:
            for seed in range(work.seeds):
                trained = work.training(method, seed) if loop == OURS else work.literal(method, seed)
                if trained is not None and work.store.has(trained):
                    start = {"loop": loop, "penalty": method, "seed": seed}
                    found += [start | row for row in _epochs(work, trained)]
    return found


def _epochs(work: Work, trained: Training) -> list[Row]:
    columns = work.store[trained]["columns"]
    found: list[Row] = [
        {"epoch": index + 1} | {name: columns[name][index] for name in _COLUMNS}
        for index in range(len(columns["reward"]))
    ]
    cell = Played(trained.scenario, seed=FIRST_LAYOUT, policy=trained, layouts=work.scale.layouts)
    if work.store.has(cell):
        values = work.store[cell]
        names = {"reward": "reward", "reward_without_penalty": "without_penalty", "violators": "violators",
                 "served": "served"}  # fmt: skip
        judged = {name: float(np.mean(values[names[name]])) if name in names else float("nan") for name in _COLUMNS}
        found.append({"epoch": 0} | judged)
    return found


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Reward and violators, in both loops."""
    with drawing_style():
        figure, axes = panels(2, rows=2, width=10.4, height=3.5)
        for place, loop in enumerate((OURS, THEIRS)):
            top, bottom = axes[0, place], axes[1, place]
            drawn = []
            for method in METHODS:
                chosen = [row for row in where(data, loop=loop, penalty=method) if row["epoch"] > 0]
                for axis, name, turn in ((top, "reward", -1.0), (bottom, "violators", 1.0)):
                    epochs, values = grid(chosen, "epoch", name)
                    if len(values):
                        shown = turn * np.array([smoothed(line) for line in values])
                        curves(axis, epochs, shown, method, every=max(len(epochs) // 8, 1), log=axis is top)
                        drawn += [shown] if axis is top else []
            top.set(title=f"{'Our' if loop == OURS else 'Paper'} loop", yscale="log")
            keep_to(top, drawn)
            top.invert_yaxis()
            bottom.set(xlabel="epoch", yscale="symlog", ylim=(0, None))
            if loop == OURS:
                legend_above(figure, top)
        axes[0, 0].set_ylabel("minus reward (log; up is better)")
        axes[1, 0].set_ylabel("violating users of an episode")
        sign(figure, setting)
        return figure


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """Faster, steadier and better with the progressive penalty."""
    faster = {loop: change(*paired(*_measured(data, loop, convergence_epoch))) for loop in (OURS, THEIRS)}
    higher = {loop: difference(*paired(*_measured(data, loop, final_reward))) for loop in (OURS, THEIRS)}
    steadier = {loop: variance_change(*paired(*_measured(data, loop, _late))) for loop in (OURS, THEIRS)}
    violators, bare = (
        {method: by_seed(where(data, loop=OURS, penalty=method, epoch=0), name) for method in METHODS}
        for name in ("violators", "reward_without_penalty")
    )
    fewer = difference(*paired(violators["dpvd"], violators["dpvd_fixed"]))
    without = change(*paired(bare["dpvd"], bare["dpvd_fixed"]))
    held = (
        f"On held-out layouts, progressive minus fixed: {words(fewer, 'violating users of an episode', 2)}, and"
        f" {words(without, '%')} of the reward without penalty."
    )
    return [
        Claim(
            figure="5",
            claim="The progressive penalty converges in fewer epochs than the fixed one.",
            paper="25 % faster",
            quantity="change of the epoch from which the common reward stays within 5 % of its span",
            unit="%",
            estimate=faster[OURS],
            verdict=judge(faster[OURS], -25.0),
            reason=f"In the paper's own loop: {words(faster[THEIRS], '%')}. {_course(data, OURS)}"
            f" {_course(data, THEIRS)}".rstrip(),
            setting=setting,
        ),
        Claim(
            figure="5",
            claim="The reward varies less with the progressive penalty once trained.",
            paper="80 % less variance",
            quantity="change of the variance over seeds of the mean common reward in the last third of the epochs",
            unit="%",
            estimate=steadier[OURS],
            verdict=judge(steadier[OURS], -80.0),
            reason=f"In the paper's own loop: {words(steadier[THEIRS], '%')}. {held}",
            setting=setting,
        ),
        Claim(
            figure="5",
            claim="The progressive penalty ends with more reward.",
            paper="about +1500",
            quantity="difference of the common reward after the last epoch",
            unit="",
            estimate=higher[OURS],
            verdict=judge(higher[OURS], 1500.0),
            reason=f"In the paper's own loop: {words(higher[THEIRS], '')}. {_left_to_gain(data)} {held}",
            setting=setting,
        ),
    ]


def _line(data: Sequence[Row], loop: str, method: str, name: str) -> Floats:
    """Mean over seeds of a column, smoothed over epochs; empty without data."""
    chosen = [row for row in where(data, loop=loop, penalty=method) if row["epoch"] > 0]
    lines = grid(chosen, "epoch", name)[1]
    return smoothed(lines.mean(axis=0)) if len(lines) else np.zeros(0)


def _course(data: Sequence[Row], loop: str) -> str:
    """When violations end under either penalty, and the share of the reward's later rise due to penalties."""
    violators = {method: _line(data, loop, method, "violators") for method in METHODS}
    if not all(len(line) for line in violators.values()):
        return ""
    name = "In our loop" if loop == OURS else "In the paper's loop"
    reached = [_epoch_below(line, 0.1 * line[0]) for line in violators.values()]
    if None in reached:
        ends = " and ".join(f"{line[0]:.1f} to {line[-1]:.1f}" for line in violators.values())
        return f"{name}, violating users of an episode go from {ends} with the progressive and the fixed penalty."
    reward, bare = (_line(data, loop, METHODS[0], column) for column in ("reward", "reward_without_penalty"))
    start = int(reached[0] or 1) - 1
    rise, other = reward[-1] - reward[start], bare[-1] - bare[start]
    return (
        f"{name}, violating users fall to a tenth of those of the first epoch in epoch {reached[0]} with the"
        f" progressive and in epoch {reached[1]} with the fixed penalty. From then on the reward of the former rises by"
        f" {rise:,.0f}, {other:,.0f} of it in parts that no penalty touches."
    )


def _epoch_below(line: Floats, level: float) -> int | None:
    """The first epoch, from 1, in which a line is at or below a level."""
    below = np.flatnonzero(line <= level)
    return int(below[0]) + 1 if len(below) else None


def _left_to_gain(data: Sequence[Row]) -> str:
    """Cost of penalties after the last epoch, an upper bound on the gain of a better penalty alone."""
    costs = []
    for method in METHODS:
        reward, bare = (_line(data, OURS, method, column) for column in ("reward", "reward_without_penalty"))
        if not len(reward):
            return ""
        costs.append(bare[-1] - reward[-1])
    return (
        f"Penalties take {costs[1]:,.0f} of the common reward after the last epoch with the fixed penalty and"
        f" {costs[0]:,.0f} with the progressive one, so that fewer violations cannot gain more than {costs[1]:,.0f}."
    )


def _measured(
    data: Sequence[Row], loop: str, measure: Callable[[Floats], float]
) -> tuple[dict[int, float], dict[int, float]]:
    found = []
    for method in METHODS:
        chosen = [row for row in where(data, loop=loop, penalty=method) if row["epoch"] > 0]
        seeds = sorted({int(row["seed"]) for row in chosen})
        found.append({seed: float(measure(column(where(chosen, seed=seed), "reward"))) for seed in seeds})
    return found[0], found[1]


def _late(rewards: Floats) -> float:
    """Mean reward of the last third of the epochs."""
    return float(np.mean(rewards[-(len(rewards) // 3) :]))
