"""Shared by Figs. 4 and 10: the loss after the last round over the number of users, on real rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from covey.evaluation import Estimate, mean_interval, rank_correlation
from covey.figures.claims import Claim, judge, judge_equal, judge_side, words
from covey.figures.definitions import change, difference
from covey.figures.draw import legend_above, look, panels, points, sign
from covey.figures.kinds import RealRun
from covey.figures.plans import FIRST_LAYOUT, Work, users_of
from covey.figures.rows import Row, by_seed, column, paired, where
from covey.report.palette import drawing_style

_LAST = ("loss", "test_loss", "accuracy", "clustering_accuracy")
_MEAN = ("served", "violators")
_SUM = ("reward", "reward_without_penalty")
_LEARNED = ("dpvd", "iql", "qmix")


def rows_over_users(work: Work, scenario: str, sizes: Sequence[int], methods: Sequence[str]) -> list[Row]:
    """One row per number of users, method and seed: values of the last round, means and sums over all rounds."""
    found: list[Row] = []
    for users in sizes:
        overrides = users_of(scenario, users)
        for method in methods:
            for seed in range(work.seeds):
                trained = work.training(method, seed, scenario, overrides)
                if trained is None:
                    continue
                found += _run(work, RealRun(scenario, overrides, FIRST_LAYOUT + seed, policy=trained), method, seed)
    return found


def rows_of_greedy(work: Work, scenario: str) -> list[Row]:
    """Runs at the scenario's own size under the policy that serves most users, on separate layouts."""
    return [row for seed in range(work.seeds) for row in _run(work, RealRun(scenario, seed=seed), "greedy", seed)]


def _run(work: Work, cell: RealRun, method: str, seed: int) -> list[Row]:
    if not work.store.has(cell):
        return []
    columns = work.store[cell]["columns"]
    return [
        {"users": cell.loaded.network.users, "method": method, "seed": seed}
        | {name: columns[name][-1] for name in _LAST}
        | {name: float(np.mean(columns[name])) for name in _MEAN}
        | {name: float(np.sum(columns[name])) for name in _SUM}
    ]


def draw_over_users(data: Sequence[Row], setting: str, title: str) -> Figure:
    """Loss, served users and clustering accuracy over the number of users."""
    methods = [m for m in _LEARNED if where(data, method=m)]
    sizes = sorted({int(row["users"]) for row in data if row["method"] in _LEARNED})
    with drawing_style():
        figure, axes = panels(3, width=12.0, height=4.0)
        shown = (
            ("loss", title, "training loss after the last round"),
            ("served", "Served users", "served users per round"),
            ("clustering_accuracy", "Groups found", "clustering accuracy"),
        )
        for axis, (name, heading, label) in zip(axes[0], shown, strict=True):
            for index, method in enumerate(methods):
                shift = 0.22 * (index - (len(methods) - 1) / 2)
                means = []
                for place, users in enumerate(sizes):
                    values = column(where(data, users=users, method=method), name)
                    if len(values):
                        points(axis, place + shift, values, method, label=users == sizes[-1])
                        means.append((place + shift, float(values.mean())))
                if means:
                    axis.plot(*zip(*means, strict=True), color=look(method)[0], linewidth=0.8, alpha=0.6)
            axis.set_xticks(range(len(sizes)), [str(users) for users in sizes])
            axis.set(title=heading, xlabel="users", ylabel=label)
        axes[0, 1].set_ylim(bottom=0.0)
        axes[0, 2].set_ylim(0.0, 1.03)
        legend_above(figure, axes[0, 0])
        sign(figure, setting)
        return figure


def claims_over_users(data: Sequence[Row], setting: str, figure: str, claimed: float) -> list[Claim]:
    """Less loss than IQL with most users, a faster fall with more users, and about QMIX's loss where it was run."""
    sizes = sorted({int(row["users"]) for row in data if row["method"] in _LEARNED})
    most, least = (sizes[-1], sizes[0]) if sizes else (0, 0)
    loss = {
        (users, method): by_seed(where(data, users=users, method=method), "loss")
        for users in (most, least)
        for method in ("dpvd", "iql", "qmix")
    }
    less = change(*paired(loss[most, "dpvd"], loss[most, "iql"]))
    found = [
        Claim(
            figure=figure,
            claim=f"With {most} users, DPVD's loss is lower than IQL's.",
            paper=f"{claimed:+.1f} %",
            quantity=f"change of the training loss after the last real round, DPVD against IQL, {most} users, alone",
            unit="%",
            estimate=less,
            verdict=judge(less, claimed),
            reason=_why(data, most),
            setting=setting,
        )
    ]
    if figure != "4":
        return found
    falls = {
        method: {
            seed: loss[least, method][seed] - loss[most, method][seed]
            for seed in loss[least, method].keys() & loss[most, method].keys()
        }
        for method in ("dpvd", "iql")
    }
    faster = difference(*paired(falls["dpvd"], falls["iql"]))
    like = change(*paired(loss[most, "dpvd"], loss[most, "qmix"]))
    fall = difference(*paired(loss[most, "dpvd"], loss[least, "dpvd"]))
    found += [
        Claim(
            figure=figure,
            claim="The loss falls faster with the number of users than IQL's.",
            paper="faster",
            quantity=f"fall of the loss from {least} to {most} users, DPVD's minus IQL's, paired by seed",
            unit="nats",
            estimate=faster,
            # If the loss rises, a slower rise does not count as a faster fall.
            verdict="not reproduced" if _rises(fall) else judge_side(faster, 1, margin=0.05),
            reason=_why_it_changes(data, least, most, fall),
            setting=setting,
        ),
        Claim(
            figure=figure,
            claim="DPVD's loss is about QMIX's.",
            paper="equal",
            quantity=f"change of the training loss after the last real round, DPVD against QMIX, {most} users, alone",
            unit="%",
            estimate=like,
            verdict=judge_equal(like),
            reason=_why(data, most, "qmix"),
            setting=setting,
        ),
    ]
    return found


def _rises(change: Estimate | None) -> bool:
    return change is not None and change.n > 1 and change.low > 0.0


def _why_it_changes(data: Sequence[Row], least: int, most: int, fall: Estimate | None) -> str:
    """Dependence of the loss on the number of users, and how much of it remains when most are served."""
    parts = [f"From {least} to {most} users DPVD's loss changes by {words(fall, 'nats', 3)}"]
    served = [column(where(data, users=users, method="dpvd"), "served") for users in (least, most)]
    if all(len(values) for values in served):
        shares = [100.0 * float(values.mean()) / users for values, users in zip(served, (least, most), strict=True)]
        parts[0] += f", while it serves {shares[0]:.0f} % of the users in a round and then {shares[1]:.0f} %"
    greedy, few = where(data, users=most, method="greedy"), column(where(data, users=least, method="dpvd"), "loss")
    if greedy and len(few):
        share = 100.0 * float(column(greedy, "served").mean()) / most
        level = mean_interval(column(greedy, "loss"))
        parts.append(
            f"Greedy, which serves {share:.0f} % of {most} users, ends at {words(level, 'nats', 3, signed=False)} on"
            f" layouts of its own, {level.value - float(few.mean()):+.3f} against DPVD's mean with {least} users"
        )
    return ". ".join(parts) + "."


def _why(data: Sequence[Row], users: int, other: str = "iql") -> str:
    """Correlates of the loss over all runs of this size: groups found, users served."""
    runs = [row for row in where(data, users=users) if row["method"] in _LEARNED]
    if len(runs) < 3:
        return "Too few runs to look for reasons."
    loss = column(runs, "loss")
    served, accuracy = column(runs, "served"), column(runs, "clustering_accuracy")
    first, second = (where(runs, method=method) for method in ("dpvd", other))
    more = difference(*paired(by_seed(first, "served"), by_seed(second, "served")))
    right = difference(
        *paired(by_seed(first, "clustering_accuracy"), by_seed(second, "clustering_accuracy")), scale=100.0
    )
    parts = [
        f"{name} {rank_correlation(loss, values):+.2f}"
        for name, values in (("groups found", accuracy), ("users served", served))
        if np.ptp(values) > 0
    ]
    return (
        f"DPVD serves {words(more, 'users per round')} more than {look(other)[2]} and finds"
        f" {words(right, 'points')} more of the groups. Over all {len(runs)} runs, rank correlation of the loss with"
        f" {' and with '.join(parts) or 'nothing that varies'}."
    )
