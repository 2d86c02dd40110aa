"""Output of `covey privacy`: summary sentence, tables, assumptions, and epsilon over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from rich import box
from rich.table import Table

from covey.privacy import Ledger, epsilon
from covey.privacy.accounting import METHODS, Adjacency, Method, Unit
from covey.privacy.planning import MOST_ROUNDS, SMALLEST_DELTA, Plan
from covey.privacy.words import NEIGHBOURS, PROTECTED
from covey.report.palette import ALARM, INK, MUTED, OKABE_ITO, drawing_style
from covey.report.words import count, number, whole

Noise = Literal["sum", "mean"]

#: Label, colour and line style of each conversion.
_LINES: dict[Method, tuple[str, str, str]] = {
    "simple": ("simple formula", OKABE_ITO[4], ":"),
    "zcdp": ("tight for zCDP", OKABE_ITO[1], "--"),
    "exact": ("exact for Gaussian noise", OKABE_ITO[0], "-"),
}
_POINTS = 121
#: Up to this many users have a row each; above, only the highest spenders.
_LISTED, _WORST = 24, 10

NOT_COVERED = (
    "losses, accuracies and anything else that a user sends besides its noised gradients",
    "choosing clipping norm, step size or noise by looking at the same data",
    "side channels: timing, message sizes, who takes part, rounding of floating-point noise",
    'runs with privacy.noise = "replay": their noise can be computed again from the seed',
)
RAW_IDENTITIES = "task identities that are announced as they are, or, with masks, decide which sum an upload is in"


@dataclass(frozen=True)
class Wording:
    """Context for describing a plan in text.

    samples: X of the user, if known. on: whether noise is stated for the sum of clipped gradients or for the
    mean gradient. whom: sentence that says for whom the answer holds. budget: largest epsilon the scenario
    allows. raw_identities: whether tasks are announced without noise.
    """

    samples: int | None = None
    on: Noise = "sum"
    whom: str = "The answer holds for every user who sends no more than this."
    budget: float | None = None
    raw_identities: bool = True

    def noise(self, std: float, *, up: bool = False) -> str:
        """Noise on the sum as text, and the equivalent on the mean if X is known; `up` rounds up, not to nearest."""

        def digits(value: float) -> str:
            return rounded_up(value, 5) if up else short(value)

        if self.samples is None:
            return f"{digits(std)} on the sum of clipped gradients"
        mean, of = digits(std / self.samples), count(self.samples, "sample")
        if self.on == "sum":
            return f"{digits(std)} on the sum of clipped gradients ({mean} on the mean of {of})"
        return f"{mean} on the mean gradient of {of} ({digits(std)} on the sum)"


def rounded_up(value: float, digits: int) -> str:
    """At most `digits` significant digits, rounded up: safe to copy where more noise protects better."""
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    upper = math.ceil(value * scale * (1.0 - 1e-12)) / scale
    return short(upper, digits)


def short(value: float, digits: int = 5) -> str:
    """A number without trailing zeros, for example 1e-5, 25 or 3.3869."""
    mantissa, e, exponent = f"{value:.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def answer_sentence(plan: Plan, wording: Wording) -> str:
    """The requested quantity in one sentence."""
    rounds, noise = count(plan.rounds, "round"), wording.noise(plan.noise_std, up=plan.asked == "noise_std")
    at = f"at delta {_delta(plan.delta)}"
    if plan.asked == "epsilon":
        return f"{rounds} with a noise of {noise} cost epsilon {number(plan.epsilon, 5)} {at}."
    if plan.asked == "noise_std":
        return f"{rounds} at epsilon {short(plan.epsilon)} need a noise of at least {noise}, {at}."
    if plan.asked == "delta":
        return f"{rounds} with a noise of {noise} keep epsilon {short(plan.epsilon)} {at} and above."
    spent = number(plan.epsilon_by(plan.method), 5)
    limit = f"epsilon {short(plan.epsilon)} {at} with a noise of {noise}"
    if plan.rounds >= MOST_ROUNDS:
        return f"More than {rounds} fit into {limit}."
    further = number(plan.epsilon_by(plan.method, plan.rounds + 1), 5)
    verb = "fits" if plan.rounds == 1 else "fit"
    return f"{rounds} {verb} into {limit}: they cost {spent}, and one more would make it {further}."


def formula_table(plan: Plan, wording: Wording) -> Table:
    """The requested quantity and the plan's epsilon by each of the three conversions."""
    table = _table()
    table.add_column("formula", no_wrap=True)
    heads = {"noise_std": f"noise on the {wording.on}", "delta": "delta", "rounds": "rounds"}
    if plan.asked != "epsilon":
        table.add_column(heads[plan.asked], justify="right", no_wrap=True)
    table.add_column("epsilon", justify="right", no_wrap=True)
    table.add_column("what it is", style="dim")
    for method in reversed(METHODS):
        words = METHODS[method] if plan.releases.rate == 1.0 else _SAMPLED[method]
        if not plan.releases.holds(method):
            words = "does not hold here: announcements of identities count as not Gaussian"
        cells = [f"{method} (the answer)" if method == plan.method else method]
        if plan.asked != "epsilon":
            cells.append(_quantity(plan, method, wording))
        table.add_row(
            *cells,
            number(plan.epsilon_by(method), 5),
            words,
            style="bold" if method == plan.method else None,
        )
    return table


def assumptions(plan: Plan, wording: Wording) -> list[str]:
    """Assumptions under which the answer holds, one sentence each."""
    releases = plan.releases
    lines = [
        wording.whom,
        (
            f"Each sample's gradient is clipped to norm {short(releases.clip)}"
            if releases.unit == "sample"
            else f"A device's whole update is clipped to norm {short(releases.clip)}"
        )
        + f"; {_neighbours(releases.adjacency, releases.unit)}, so that"
        f" the {'sum of clipped gradients' if releases.unit == 'sample' else 'clipped update'} moves by at most"
        f" {short(releases.sensitivity)} and a round costs rho"
        f" {short(releases.upload_rho(plan.noise_std))}"
        + (f" for {releases.uploads} uploads." if releases.uploads > 1 else "."),
        "What is protected is one sample of one user; for k samples of one person rho is k^2 times as large."
        if releases.unit == "sample"
        else PROTECTED[releases.unit, releases.adjacency],
        "Public, that is known to everybody: the number of samples, the clipping norm, all noise levels, and who is"
        " served in which round.",
        "Noise is Gaussian, fresh in every upload, from a cryptographic source, and never less than stated, whatever"
        " earlier rounds showed; "
        + (
            "no gain from sampling is claimed."
            if releases.rate == 1.0
            else f"each sample is in a batch with probability {short(releases.rate)}, drawn on the device for every sum"
            " and known to nobody. The rho above lacks that gain."
        ),
    ]
    if releases.steps > 1:
        lines.append(
            f"A round has {count(releases.steps, 'local step')}, each with noise of its own, and each is charged."
        )
    if releases.identity_rho > 0:
        announced = releases.announced(plan.rounds)
        lines.append(
            f"Included: {count(announced, 'announcement')} of the user's task with noise, rho"
            f" {short(releases.identity_rho)} each. They count as not Gaussian, so the exact formula does not hold and"
            " the zCDP formulas answer."
        )
    if wording.samples is not None and plan.delta * wording.samples >= 1.0:
        lines.append(
            f"Delta {_delta(plan.delta)} is not below 1 / {wording.samples}, one sample's share: it would allow"
            " publishing a sample outright and promises little."
        )
    return lines


def not_covered(wording: Wording) -> list[str]:
    """Leakage the guarantee does not cover."""
    return [RAW_IDENTITIES, *NOT_COVERED] if wording.raw_identities else list(NOT_COVERED)


def spent_table(ledger: Ledger) -> Table:
    """Privacy spent per user (only the highest spenders if there are many), with mean and maximum over all."""
    columns: dict[str, Sequence[str]] = {"uploads": [whole(value) for value in ledger.releases]}
    for name, values in (("tasks announced", ledger.announcements), ("raw tasks", ledger.unprotected)):
        if np.any(values > 0):
            columns[name] = [whole(value) for value in values]
    numbers: dict[str, NDArray[np.float64]] = {"rho": ledger.rho}
    numbers |= {method: ledger.epsilon(method) for method in reversed(METHODS) if spent_holds(ledger, method)}
    table = _table()
    for head in ("user", *columns, *numbers, "budget", "refused"):
        table.add_column(head, justify="right", no_wrap=True)
    order = np.arange(ledger.users)
    if ledger.users > _LISTED:
        order = np.argsort(-ledger.rho, kind="stable")[:_WORST]
        table.title = f"The {_WORST} of {count(ledger.users, 'user')} who spent most"
    budgets = budget_of(ledger)
    for user in order.tolist():
        table.add_row(
            str(user),
            *(cells[user] for cells in columns.values()),
            *(number(float(values[user]), 4) for values in numbers.values()),
            number(None if budgets is None else float(budgets[user]), 4),
            whole(ledger.refusals[user]),
        )
    table.add_section()
    for name, summary in (("mean", np.mean), ("largest", np.max)):
        cells = [number(float(summary(values)), 4) for values in numbers.values()]
        table.add_row(name, *("" for _ in columns), *cells, "", "", style="bold")
    return table


def budget_of(ledger: Ledger) -> NDArray[np.float64] | None:
    """(U,) largest epsilon each user may spend; None without a budget."""
    if ledger.budget_epsilon is None:
        return None
    return np.broadcast_to(np.asarray(ledger.budget_epsilon, dtype=np.float64), ledger.users)


def spent_holds(ledger: Ledger, method: Method) -> bool:
    """Whether the conversion is valid for everything charged to this ledger."""
    return method != "exact" or not np.any(ledger.announcements > 0)


def spent_record(ledger: Ledger) -> dict[str, Any]:
    """Privacy spent per user, JSON-serialisable; infinity becomes "infinite"."""

    def plain(value: float) -> float | str:
        return float(value) if math.isfinite(value) else "infinite"

    by_method = {name: ledger.epsilon(name) if spent_holds(ledger, name) else None for name in METHODS}
    budgets = budget_of(ledger)
    return {
        "delta": ledger.delta,
        "adjacency": ledger.adjacency,
        "unit": ledger.unit,
        "rho_is_exact": not ledger.sampled,
        "epsilon_max": {k: None if v is None else plain(v.max()) for k, v in by_method.items()},
        "epsilon_mean": {k: None if v is None else plain(v.mean()) for k, v in by_method.items()},
        "users": [
            {
                "user": user,
                "releases": int(ledger.releases[user]),
                "announcements": int(ledger.announcements[user]),
                "unprotected": int(ledger.unprotected[user]),
                "refusals": int(ledger.refusals[user]),
                "rho": plain(ledger.rho[user]),
                "epsilon": {k: None if v is None else plain(v[user]) for k, v in by_method.items()},
                "budget_epsilon": None if budgets is None else float(budgets[user]),
            }
            for user in range(ledger.users)
        ],
    }


def draw_plan(plan: Plan, wording: Wording) -> Figure:
    """Epsilon over rounds by each valid conversion, with the requested point, the requested limit and the budget."""
    top = plan.rounds + max(1, plan.rounds // 3)
    rounds = np.unique(np.linspace(0, top, _POINTS).round().astype(np.int64))
    curves = {method: plan.curve(method, rounds) for method in METHODS if plan.releases.holds(method)}
    height = plan.epsilon_by(plan.method)
    assert height is not None
    releases = plan.releases
    levels = {"budget of the scenario": wording.budget}
    if plan.asked != "epsilon":
        levels["asked epsilon"] = plan.epsilon
    return draw_epsilon(
        rounds,
        curves,
        (plan.rounds, height),
        f"Epsilon over rounds at delta = {_delta(plan.delta)}",
        f"clipped to {short(releases.clip, 4)}, noise {short(plan.noise_std, 4)} on the sum, rho"
        f" {short(releases.upload_rho(plan.noise_std), 4)} a round, {NEIGHBOURS[releases.unit, releases.adjacency]}",
        levels={name: level for name, level in levels.items() if level is not None},
    )


def draw_spent(ledger: Ledger, spent: NDArray[np.float64], method: Method, setting: str) -> Figure:
    """Largest epsilon over rounds; `spent` (T, U) is cumulative rho, and the ledger holds the final totals."""
    totals = np.concatenate([[0.0], spent.max(axis=1)])
    totals[-1] = max(float(totals[-1]), float(ledger.rho.max()))
    rounds = np.unique(np.linspace(0, len(spent), _POINTS).round().astype(np.int64))
    curves: dict[Method, NDArray[np.float64]] = {
        name: np.array([epsilon(float(totals[index]), ledger.delta, name) for index in rounds])
        for name in METHODS
        if spent_holds(ledger, name)
    }
    budgets = budget_of(ledger)
    return draw_epsilon(
        rounds,
        curves,
        (int(rounds[-1]), float(curves[method][-1])),
        f"Largest epsilon of a user over rounds at delta = {_delta(ledger.delta)}",
        setting,
        levels={} if budgets is None else {"largest budget": float(budgets.max())},
    )


def draw_epsilon(
    rounds: NDArray[np.int64],
    curves: Mapping[Method, NDArray[np.float64]],
    point: tuple[int, float],
    title: str,
    setting: str,
    *,
    levels: Mapping[str, float],
) -> Figure:
    """Curves (n,) of epsilon over `rounds` (n,), with one marked point and named horizontal lines."""
    with drawing_style():
        figure = Figure(figsize=(7.2, 4.4), layout="constrained")
        axes: Axes = figure.subplots()
        unlimited = not all(np.isfinite(values).all() for values in curves.values())
        if unlimited:
            axes.text(0.5, 0.5, "unlimited:\nuploads left without noise", transform=axes.transAxes, ha="center",
                      va="center", color=ALARM, fontsize=11)  # fmt: skip
            axes.set_yticks([])
        else:
            _curves(axes, rounds, curves, point, levels)
            entries = len(curves) + len(levels)
            figure.legend(loc="outside lower left", ncols=4 if entries <= 4 else 3, handlelength=2.6)
        axes.set_xlabel("round")
        axes.set_xlim(0, max(1, int(rounds[-1])))
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        axes.set_title(setting, fontsize=8.5, fontweight="normal", color=MUTED, parse_math=False)
        return figure


def _curves(
    axes: Axes,
    rounds: NDArray[np.int64],
    curves: Mapping[Method, NDArray[np.float64]],
    point: tuple[int, float],
    levels: Mapping[str, float],
) -> None:
    for method, (label, colour, line) in _LINES.items():
        if method in curves:
            axes.plot(rounds, curves[method], color=colour, linestyle=line, linewidth=2.0, label=label)
    for name, level in levels.items():
        style = "-." if name.startswith("asked") else (0, (1, 1))
        axes.axhline(level, color=INK, linestyle=style, linewidth=1.3, label=f"{name}, {short(level)}")
    axes.vlines(point[0], 0.0, point[1], color=MUTED, linewidth=1.0)
    axes.plot(*point, color=INK, marker="o", markersize=7, markeredgecolor="white", zorder=5, clip_on=False)
    highest = max([1e-9, *levels.values(), *(float(values.max()) for values in curves.values())])
    axes.set_ylim(0.0, 1.08 * highest)
    right = point[0] > 0.6 * rounds[-1]
    axes.annotate(
        f"{count(point[0], 'round')}: epsilon {number(point[1], 4)}", (point[0], 0.0),
        xytext=(-8 if right else 8, 9), textcoords="offset points", ha="right" if right else "left", fontsize=9,
        fontweight="bold", bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.9},
    )  # fmt: skip
    axes.set_ylabel("epsilon")


#: What the conversions are of sums on Poisson samples.
_SAMPLED: dict[Method, str] = {
    "exact": "by privacy loss distributions, or, with announcements, as zcdp",
    "zcdp": "by Renyi divergences, for any noise of announcements",
    "simple": "without the gain from sampling",
}


def _neighbours(adjacency: Adjacency, unit: Unit) -> str:
    if unit == "device":
        return f"two data sets are neighbours with {NEIGHBOURS[unit, adjacency]}"
    if adjacency == "replace_one":
        return "two data sets are neighbours if one sample of one user is replaced by any other"
    return "two data sets are neighbours if one user has one sample more or less"


def _quantity(plan: Plan, method: Method, wording: Wording) -> str:
    value = plan.by_method[method]
    if value is None:
        return "none"
    if plan.asked == "rounds":
        return whole(value)
    if plan.asked == "noise_std":
        return rounded_up(value / (wording.samples or 1) if wording.on == "mean" else value, 5)
    return _delta(value)


def _delta(value: float) -> str:
    return "1e-300 (or less)" if value <= SMALLEST_DELTA else rounded_up(value, 4)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", title_justify="left")
