"""Plot and table of a policy comparison."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from rich import box
from rich.table import Table

from covey.evaluation import Comparison, mean_interval
from covey.report.palette import ALARM, INK, MUTED, OKABE_ITO, drawing_style

#: Baseline policy; the first one if it was not evaluated.
_REFERENCE = "greedy"


def draw_comparison(comparison: Comparison) -> Figure:
    """Reward difference to greedy, one dot per layout, with mean and 95 % interval; violations on the right."""
    reference = _reference(comparison)
    with drawing_style(**{"axes.grid.axis": "x"}):
        shown = [result for result in comparison.results if result.policy != reference]
        figure = Figure(figsize=(9.6, 1.6 + 0.5 * len(shown)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
        base = comparison[reference].reward
        scale = 100.0 / abs(float(base.mean()))
        for row, result in enumerate(shown):
            change = scale * (result.reward - base)
            jitter = np.linspace(-0.16, 0.16, len(change))
            left.scatter(change, row + jitter, s=9, color=OKABE_ITO[5], alpha=0.6, linewidths=0)
            estimate = mean_interval(change)
            left.errorbar(
                estimate.value, row, xerr=[[estimate.value - estimate.low], [estimate.high - estimate.value]],
                color=INK, marker="o", markersize=5, capsize=4,
            )  # fmt: skip
            right.barh(row, result.violators.mean(), height=0.5, color=ALARM)
            right.annotate(
                f"{result.violators.mean():.2f}", (result.violators.mean(), row), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=8.5,
            )  # fmt: skip
        left.axvline(0.0, color=MUTED, linewidth=1.0)
        left.set_yticks(range(len(shown)), [result.policy for result in shown])
        left.invert_yaxis()
        left.set_xscale("symlog", linthresh=10.0)
        left.set(
            xlabel=f"reward against {reference}, % (positive is better)", title="Every layout, mean, 95 % interval"
        )
        right.set(xlabel="users per episode", title="Violations")
        right.set_xscale("symlog", linthresh=1.0)
        right.set_xlim(0, max(1.0, *(4 * float(result.violators.mean()) for result in shown)))
        figure.suptitle(
            f"{comparison.scenario}: {len(comparison.seeds)} held-out layouts, {comparison.learning} rounds",
            x=0.01, ha="left", fontsize=11,
        )  # fmt: skip
        return figure


def comparison_table(comparison: Comparison) -> Table:
    """One row per policy: reward, difference to greedy, violations, served users, cost of a decision."""
    reference = _reference(comparison)
    table = Table(
        title=f"{comparison.scenario}, {len(comparison.seeds)} layouts, {comparison.learning} rounds; 95 % intervals",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("policy", style="bold", no_wrap=True)
    for heading in ("reward", f"vs {reference}, %", "viol.", "served", "loss", "ms", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in comparison.results:
        reward = mean_interval(result.reward)
        share = comparison.relative(result.policy, reference)
        table.add_row(
            result.policy,
            f"{reward.value:,.0f} ±{reward.half_width:,.0f}",
            "" if result.policy == reference else f"{share.value:+.1f} ±{share.half_width:.1f}",
            f"{result.violators.mean():.2f}",
            f"{result.served.mean():.1f}",
            f"{result.final_loss.mean():.3f}",
            f"{result.decision_ms:.2f}",
            f"{result.bytes:,.0f}",
        )
    return table


def _reference(comparison: Comparison) -> str:
    names = [result.policy for result in comparison.results]
    return _REFERENCE if _REFERENCE in names else names[0]
