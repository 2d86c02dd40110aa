"""Fig. 3: reward over epochs of DPVD, IQL and QMIX, in our loop and in the paper's, with held-out evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from covey.evaluation import Estimate
from covey.figures.claims import Claim, judge, judge_equal, words
from covey.figures.definitions import change, convergence_epoch, final_reward, smoothed
from covey.figures.draw import curves, keep_to, legend, look, panels, points, sign
from covey.figures.kinds import Played, RealRun, Training
from covey.figures.plans import FIRST_LAYOUT, QUICK_REFERENCES, SHORT_EXPLORATION, SHORT_SEEDS, Work
from covey.figures.rows import Floats, Row, by_seed, column, grid, paired, where
from covey.report.palette import drawing_style

TITLE = "Reward over epochs"
CAPTION = (
    "Accumulated reward of an episode while training, mean of the last ten epochs: lines are means over seeds, bands"
    " 95 % intervals, faint lines seeds. Right: policies trained in our loop on held-out layouts, stations deciding"
    " alone unless it says guarded, beside reference policies that keep the rules."
)
OURS, THEIRS, SHORT = "covey", "paper", "short exploration"
WAYS = {"alone": ("dpvd", "iql", "qmix", "iql_local"), "guarded": ("dpvd",)}
#: References that never break a rule.
VALID_REFERENCES = ("random", "coverage", "greedy")
METHODS = {OURS: ("dpvd", "iql", "qmix", "iql_local"), THEIRS: ("dpvd", "iql", "qmix")}


def rows(work: Work) -> list[Row]:
    """Rows of trainings (one per epoch), of held-out layouts, of references, and of trainings with real rounds."""
    found: list[Row] = []
    for loop, methods in METHODS.items():
        for method in methods:
            for seed in range(work.seeds):
                trained = work.training(method, seed) if loop == OURS else work.literal(method, seed)
                found += _trained(work, trained, loop, method, seed)
    for method in ("dpvd", "iql"):
        for seed in range(min(work.seeds, SHORT_SEEDS)):
            found += _trained(work, work.training(method, seed, changes=SHORT_EXPLORATION), SHORT, method, seed)
    for name in QUICK_REFERENCES:
        cell = Played(work.scale.scenario, seed=FIRST_LAYOUT, policy=name, layouts=work.scale.layouts)
        if work.store.has(cell):
            found.append(_row("reference", "", name, 0, 0, float(np.mean(work.store[cell]["reward"]))))
    return found + _real(work)


def _trained(work: Work, trained: Training | None, loop: str, method: str, seed: int) -> list[Row]:
    if trained is None or not work.store.has(trained):
        return []
    columns = work.store[trained]["columns"]
    found = [
        _row("training", loop, method, seed, index + 1, reward, columns["violators"][index], columns["served"][index])
        for index, reward in enumerate(columns["reward"])
    ]
    for way in ("alone", "guarded"):
        cell = Played(trained.scenario, seed=FIRST_LAYOUT, policy=trained, way=way, layouts=work.scale.layouts)
        if work.store.has(cell):
            values = work.store[cell]
            means = [float(np.mean(values[name])) for name in ("reward", "violators", "served")]
            found.append(_row(f"held out {way}", loop, method, seed, 0, *means))
    return found


def _real(work: Work) -> list[Row]:
    """Short trainings on digits, on real rounds and on the surrogate, all evaluated on real rounds."""
    found = []
    for learning in ("real", "surrogate"):
        for method in ("dpvd", "iql"):
            for seed in range(work.scale.real_seeds):
                trained = work.real_training(method, seed, learning)
                runs = [
                    RealRun("paper_digits", seed=FIRST_LAYOUT + layout, policy=trained)
                    for layout in range(work.scale.real_seeds)
                ]
                if all(work.store.has(run) for run in runs):
                    totals = [sum(work.store[run]["columns"]["reward"]) for run in runs]
                    found.append(_row(f"trained on {learning}", "digits", method, seed, 0, float(np.mean(totals))))
    return found


def _row(
    what: str,
    loop: str,
    method: str,
    seed: int,
    epoch: int,
    reward: float,
    violators: float = float("nan"),
    served: float = float("nan"),
) -> Row:
    return {
        "what": what, "loop": loop, "method": method, "seed": seed, "epoch": epoch, "reward": reward,
        "violators": violators, "served": served,
    }  # fmt: skip


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Both loops, and the held-out layouts."""
    with drawing_style():
        figure, axes = panels(3, width=12.6, height=4.4)
        for axis, (loop, methods) in zip(axes[0], METHODS.items(), strict=False):
            drawn = []
            for method in methods:
                epochs, values = grid(where(data, what="training", loop=loop, method=method), "epoch", "reward")
                if len(values):
                    drawn.append(-np.array([smoothed(line) for line in values]))
                    curves(axis, epochs, drawn[-1], method, every=max(len(epochs) // 8, 1), log=True)
            axis.set(title=f"{'Our' if loop == OURS else 'Paper'} loop", xlabel="epoch", yscale="log")
            keep_to(axis, drawn)
            axis.invert_yaxis()
            legend(axis, loc="lower right" if loop == OURS else "upper right")
        axes[0, 0].set_ylabel("minus reward of an episode (log; up is better)")
        _draw_held_out(axes[0, 2], data)
        sign(figure, setting)
        return figure


def _draw_held_out(axis: Axes, data: Sequence[Row]) -> None:
    """Our trained policies and the valid references; the others are far below and would compress the axis."""
    shown = [(f"held out {way}", method) for way, methods in WAYS.items() for method in methods]
    labels: list[str] = []
    for what, method in shown:
        values = column(where(data, what=what, loop=OURS, method=method), "reward")
        if len(values):
            guarded = what.endswith("guarded")
            points(axis, len(labels), values, f"{method}_guarded" if guarded else method, label=False)
            labels.append(look(f"{method}_guarded" if guarded else method)[2])
    for name in VALID_REFERENCES:
        for row in where(data, what="reference", method=name):
            points(axis, len(labels), np.array([row["reward"]]), name, label=False)
            labels.append(look(name)[2])
    axis.set_xticks(range(len(labels)), labels, rotation=60, ha="right", rotation_mode="anchor")
    axis.set(title="Held-out layouts", ylabel="reward of an episode")


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """Faster and better than IQL, like QMIX."""
    epochs = {m: _by_seed(data, OURS, m, convergence_epoch) for m in METHODS[OURS]}
    final = {m: _by_seed(data, OURS, m, final_reward) for m in METHODS[OURS]}
    literal = {m: _by_seed(data, THEIRS, m, final_reward) for m in METHODS[THEIRS]}
    held = {m: by_seed(where(data, what="held out alone", loop=OURS, method=m), "reward") for m in METHODS[OURS]}

    def better(values: dict[str, dict[int, float]], than: str) -> Estimate | None:
        return change(*paired(values["dpvd"], values[than]))

    faster, own = better(epochs, "iql"), better(final, "iql_local")
    literal_epochs = {m: _by_seed(data, THEIRS, m, convergence_epoch) for m in METHODS[THEIRS]}
    more, like = better(final, "iql"), better(final, "qmix")
    return [
        Claim(
            figure="3",
            claim="DPVD converges in fewer epochs than IQL.",
            paper="20 % faster",
            quantity="change of the epoch from which the reward stays within 5 % of its span, DPVD against IQL",
            unit="%",
            estimate=faster,
            verdict=judge(faster, -20.0),
            reason=f"In the paper's own loop: {words(better(literal_epochs, 'iql'), '%')}; against IQL with own"
            f" rewards: {words(better(epochs, 'iql_local'), '%')}. Mean epochs: DPVD {_mean(epochs['dpvd'])}, IQL"
            f" {_mean(epochs['iql'])}, QMIX {_mean(epochs['qmix'])}. {_schedule_words(data)}",
            setting=setting,
        ),
        Claim(
            figure="3",
            claim="DPVD ends with more accumulated reward than IQL whose stations learn from the team's reward.",
            paper="+15 %",
            quantity="change of the reward after the last epoch, DPVD against IQL",
            unit="%",
            estimate=more,
            verdict=judge(more, 15.0),
            reason=f"On held-out layouts without exploration: {words(better(held, 'iql'), '%')} against IQL. In the"
            f" paper's own loop: {words(better(literal, 'iql'), '%')}. {_real_words(data)}",
            setting=setting,
        ),
        Claim(
            figure="3",
            claim="DPVD ends with more accumulated reward than IQL whose stations learn from their own shares.",
            paper="+15 %",
            quantity="change of the reward after the last epoch, DPVD against IQL with own rewards",
            unit="%",
            estimate=own,
            verdict=judge(own, 15.0),
            reason=f"On held-out layouts without exploration: {words(better(held, 'iql_local'), '%')}. Users served per"
            f" round there: DPVD {_served(data, 'dpvd')}, IQL {_served(data, 'iql')}, IQL with own rewards"
            f" {_served(data, 'iql_local')}.",
            setting=setting,
        ),
        Claim(
            figure="3",
            claim="DPVD and QMIX end with about the same reward.",
            paper="equal",
            quantity="change of the reward after the last epoch, DPVD against QMIX",
            unit="%",
            estimate=like,
            verdict=judge_equal(like),
            reason=f"On held-out layouts without exploration: {words(better(held, 'qmix'), '%')}. In the paper's own"
            f" loop: {words(better(literal, 'qmix'), '%')}.",
            setting=setting,
        ),
    ]


def _by_seed(data: Sequence[Row], loop: str, method: str, measure: Callable[[Floats], float]) -> dict[int, float]:
    chosen = where(data, what="training", loop=loop, method=method)
    seeds = sorted({int(row["seed"]) for row in chosen})
    return {seed: float(measure(column(where(chosen, seed=seed), "reward"))) for seed in seeds}


def _schedule_words(data: Sequence[Row]) -> str:
    """Effect of halving the exploration epochs on convergence, paired by seed."""
    found = []
    for method in ("dpvd", "iql"):
        short, usual = paired(*(_by_seed(data, loop, method, convergence_epoch) for loop in (SHORT, OURS)))
        if len(short):
            found.append(
                f"{look(method)[2]} in {short.mean():.0f} instead of {usual.mean():.0f} epochs (n = {len(short)})"
            )
    if not found:
        return ""
    return f"With exploration over half as many epochs, which all methods share, {' and '.join(found)} converge."


def _served(data: Sequence[Row], method: str) -> str:
    values = column(where(data, what="held out alone", loop=OURS, method=method), "served")
    return f"{values.mean():.1f}" if len(values) else "no data"


def _mean(values: dict[int, float]) -> str:
    return f"{np.mean(list(values.values())):.0f}" if values else "no"


def _real_words(data: Sequence[Row]) -> str:
    """Whether training on real rounds gives the same ranking."""
    found = {}
    for learning in ("real", "surrogate"):
        first, second = (
            by_seed(where(data, what=f"trained on {learning}", method=method), "reward") for method in ("dpvd", "iql")
        )
        found[learning] = change(*paired(first, second))
    if found["real"] is None or found["surrogate"] is None:
        return ""
    return (
        "Short trainings on digits, judged on real rounds, DPVD against IQL:"
        f" {words(found['real'], '%')} with real rounds inside, {words(found['surrogate'], '%')} with the surrogate."
    )
