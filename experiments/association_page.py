"""The page docs/policies.md and its plot, from the files in results/association alone."""

from __future__ import annotations

import json
import textwrap
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from covey.environment import calibration_for
from covey.environment.surrogate import recursion
from covey.evaluation import Estimate, interquartile_mean, mean_interval, rank_correlation
from covey.figures.cells import cells_in
from covey.files import write_atomically
from covey.jobs import made_with, versions_text
from covey.report.palette import INK, MUTED, OKABE_ITO, drawing_style
from covey.report.pictures import png
from covey.scenario import PAPER_START, load_scenario

#: Rank correlation above which the surrogate is said to predict the order.
_PREDICTS = 0.6
REFERENCES = ("random", "nearest", "coverage", "greedy", "local_search", "exact")
TITLES = {
    "dpvd": "DPVD",
    "dpvd_team": "DPVD, credit from the team's reward",
    "iql": "IQL",
    "qmix": "QMIX",
    "dpvd_able": "DPVD, any task it can run",
    "iql_able": "IQL, any task it can run",
    "dpvd_able_fixed": "DPVD, any task, fixed penalty",
    "dpvd_fixed": "DPVD, fixed penalty",
    "dpvd_subset": "DPVD, subset head",
    "dpvd_subset_fixed": "DPVD, subset head, fixed penalty",
    "literal": "the paper's loop as printed",
    "quick_dpvd": "DPVD",
    "quick_iql": "IQL",
}


class Judged:
    """The values of one evaluation file, by cell and decision mode; references have no mode."""

    def __init__(self, path: Path) -> None:
        self.file = json.loads(path.read_text(encoding="utf-8"))
        self.layouts = len(self.file["layouts"])
        self.cells: dict[tuple[str, str], list[str]] = {}
        for name in self.file["values"]:
            if "|" in name:
                cell, _, way = name.split("|")
                self.cells.setdefault((cell, way), []).append(name)
            else:
                self.cells[(name, "")] = [name]

    def values(self, cell: str, way: str, key: str = "reward") -> np.ndarray:
        """(seeds, layouts)."""
        return np.array([self.file["values"][name][key] for name in self.cells[(cell, way)]])

    def mean_of(self, cell: str, way: str, key: str) -> float:
        """Mean over seeds of a summary value."""
        found = [self.file["policies"][name][key] for name in self.cells[(cell, way)]]
        return float(np.mean([value["value"] if isinstance(value, dict) else value for value in found]))

    def difference(self, first: tuple[str, str], second: tuple[str, str]) -> Estimate:
        """Reward of the first relative to the second, in % of the second's mean; paired by layout, means over seeds."""
        one, other = self.values(*first).mean(axis=0), self.values(*second).mean(axis=0)
        return mean_interval(100.0 * (one - other) / abs(other.mean()))


def render_page(results: Path) -> str:
    """The page as Markdown."""
    paper, quick = (Judged(results / f"surrogate_{name}.json") for name in ("paper", "paper_digits"))
    tuning = json.loads((results / "tuning.json").read_text(encoding="utf-8"))
    chosen = ", ".join(f"{alg} {choice}" for alg, choice in tuning["chosen"].items())
    lines = [
        "# Which policy, where",
        "",
        *_text(
            """Generated from `results/association` by `python experiments/association.py page`; `make
            study-policies` repeats the whole study. Not one number here is typed by hand."""
        ),
        "",
        *_text(
            f"""Every learned policy was trained with up to {_seeds(paper)} seeds on the surrogate, on new layouts
            in every episode, and is judged on {paper.layouts} layouts that no training, validation or
            calibration has seen, the same for all policies. Rewards are the paper's (27), accumulated over an
            episode of 15 rounds, with the progressive penalty. Differences are paired by layout, with 95 %
            intervals over layouts of the means over seeds; the middle mean is the interquartile mean with a
            bootstrap interval over seeds and layouts. `alone`: nothing is exchanged between stations.
            `guarded`: through the admission guard."""
        ),
        "",
        *_text(
            f"""**Tuning.** Before, each of DPVD, IQL and QMIX was trained with the same
            {len(tuning["trials"]["dpvd"])} step sizes, {tuning["epochs"]} epochs and one seed that is used
            nowhere else, and kept the best on validation layouts ({chosen}). The rest of the recipe (features,
            guard, exploration, shaping, the range of step sizes) was found with DPVD, on `paper_digits` and `paper`,
            in about twenty short trainings looked at on other layouts than those below: that favours DPVD over
            IQL and QMIX."""
        ),
        "",
        *_text(
            """The policies that ship with covey are other trainings, with more epochs: what `covey train quick` and
            `covey train paper` give with their defaults. Sets of fewer than five seeds are side questions."""
        ),
        "",
        "![Reward against greedy on every held-out layout](images/policies.png)",
        "",
        "## How good the surrogate is",
        "",
        *_surrogate(),
        "",
        "## The paper's network, surrogate rounds",
        "",
        *_table(paper, ["dpvd", "iql", "qmix", "dpvd_team", "dpvd_able", "iql_able", "literal"]),
        "",
        *_verdicts(paper),
        "",
        "## Progressive against fixed penalty",
        "",
        *_text("""Both are scored with the same (progressive) reward."""),
        "",
        *_penalties(paper),
        "",
        "## `paper_digits`, surrogate rounds",
        "",
        *_table(quick, ["quick_dpvd", "quick_iql"]),
        "",
    ]
    lines += _transfer(results) + _real(results, "digits", quick, "quick_") + _real(results, "cifar10", paper, "")
    lines += [
        "## Reading this",
        "",
        *_text(
            """`greedy`, `local_search` and `exact` serve as many samples as they can. The reward asks for
            something else: every model should move in every round, and each served user leaks. `coverage`,
            which serves one user of every task, is therefore the reference to beat, although it serves less
            than half as many users. A difference that is clear on the surrogate can be larger or smaller on
            real rounds; the tables above show both."""
        ),
        "",
    ]
    return "\n".join(lines)


def _text(paragraph: str) -> list[str]:
    return textwrap.wrap(" ".join(paragraph.split()), 118)


def _surrogate() -> list[str]:
    """Fitted constants and errors of the shipped calibrations."""
    rows = [
        "| | runs fitted / kept out | one round: RMSE | one round: explained | whole run: RMSE of the mean loss"
        " | order of runs: correlation |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    constants = [
        "| | own samples only, at losses | others only | half and half | missing | noise |",
        "| --- " * 6 + "|",
    ]
    for name in ("paper_digits", "paper"):
        found = calibration_for(load_scenario(name, PAPER_START))
        error, fitted = found.error, found.constants
        order = f"{error.rollout_correlation:.2f}" if error.runs_kept_out >= 3 else "too few runs"
        rows.append(
            f"| `{name}` | {error.runs_fitted} / {error.runs_kept_out} | {error.one_step_rmse:.3f}"
            f" | {error.one_step_r2:.2f} | {error.rollout_rmse:.3f} | {order} |"
        )
        own = ", ".join(f"{change:+.2f} at {loss:.1f}" for loss, change in zip(fitted.knots, fitted.own, strict=True))
        middle = float(np.mean(fitted.knots))
        point, none = np.array([middle]), np.zeros(1)
        others, half = (float(recursion(fitted, point, share + none, none, none)[0] - middle) for share in (1.0, 0.5))
        constants.append(
            f"| `{name}` | {own} | {others:+.3f} at {middle:.1f} | {half:+.3f} at {middle:.1f} | {fitted.missing:.2g}"
            f" | {fitted.noise:.2g} |"
        )
    note = """Errors are those of runs kept out of the fit; runs were played under policies that serve randomly many
        users, as many as possible, and one of every task. The second table says how much the loss of a group changes in
        one round, by who trained the model, and is the finding behind everything below: what is missing of a group
        (`missing`) costs nothing measurable, other groups in the same model cost a lot. One right user moves a model
        about as far as three, and a model that half belongs to others hardly moves."""
    return [*rows, "", *constants, "", *_text(note)]


def _seeds(judged: Judged) -> int:
    return len(judged.cells[("dpvd", "guarded")])


def _estimate(value: Estimate, digits: int = 1) -> str:
    return f"{value.value:+.{digits}f} ± {value.half_width:.{digits}f}"


def _table(judged: Judged, learned: list[str]) -> list[str]:
    rows = [
        "| policy | seeds | reward, middle mean | vs greedy, % | vs coverage, % | violators | served | ms | bytes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    keys = [(name, "") for name in REFERENCES]
    keys += [(cell, way) for cell in learned for way in ("guarded", "alone") if (cell, way) in judged.cells]
    for cell, way in keys:
        if (cell, way) not in judged.cells:
            continue
        values = judged.values(cell, way)
        middle = interquartile_mean(values)
        name = f"{TITLES[cell]}, {way}" if way else f"`{cell}`"
        against = [
            "" if cell == other else _estimate(judged.difference((cell, way), (other, "")))
            for other in ("greedy", "coverage")
        ]
        rows.append(
            f"| {name} | {len(values) if way else ''} | {middle.value:,.0f} [{middle.low:,.0f}, {middle.high:,.0f}]"
            f" | {against[0]} | {against[1]} | {judged.mean_of(cell, way, 'violators_per_episode'):.2f}"
            f" | {judged.mean_of(cell, way, 'served_per_round'):.1f} | {judged.mean_of(cell, way, 'decision_ms'):.2f}"
            f" | {judged.mean_of(cell, way, 'exchanged_bytes_per_decision'):,.0f} |"
        )
    notes = """Violators: violating users in an episode. Served: users per round. ms: one decision of all
        stations, learned policies deciding for many networks at once. bytes: exchanged between stations for one
        decision."""
    return [*rows, "", *_text(notes)]


def _verdict(text: str, value: Estimate) -> str:
    word = "yes" if value.low > 0 else "no, the opposite" if value.high < 0 else "not decided"
    return f"| {text} | {_estimate(value)} % | {value.n} | **{word}** |"


def _verdicts(judged: Judged) -> list[str]:
    rows = ["| claim | difference of rewards | layouts | holds? |", "| --- | --- | --- | --- |"]
    claims = [
        ("guarded DPVD beats greedy", ("dpvd", "guarded"), ("greedy", "")),
        ("guarded DPVD beats local search", ("dpvd", "guarded"), ("local_search", "")),
        ("guarded DPVD beats the exact sample maximum", ("dpvd", "guarded"), ("exact", "")),
        ("guarded DPVD beats coverage", ("dpvd", "guarded"), ("coverage", "")),
        ("DPVD alone beats IQL alone (own tasks)", ("dpvd", "alone"), ("iql", "alone")),
        ("DPVD alone beats IQL alone (any task)", ("dpvd_able", "alone"), ("iql_able", "alone")),
        ("the same with the team's reward for both", ("dpvd_team", "alone"), ("iql", "alone")),
        ("DPVD alone beats QMIX alone (own tasks)", ("dpvd", "alone"), ("qmix", "alone")),
        ("DPVD alone beats greedy", ("dpvd", "alone"), ("greedy", "")),
        ("marginal credit beats the team's reward, guarded", ("dpvd", "guarded"), ("dpvd_team", "guarded")),
        ("marginal credit beats the team's reward, alone", ("dpvd", "alone"), ("dpvd_team", "alone")),
        ("tasks in turns beat any task, alone", ("dpvd", "alone"), ("dpvd_able", "alone")),
        ("guarded DPVD beats guarded IQL", ("dpvd", "guarded"), ("iql", "guarded")),
    ]
    for text, first, second in claims:
        if first in judged.cells and second in judged.cells:
            rows.append(_verdict(text, judged.difference(first, second)))
    return rows


def _penalties(judged: Judged) -> list[str]:
    rows = [
        "| head, way | progressive: reward, without penalty, violators | fixed | progressive better by, % | holds? |",
        "| --- | --- | --- | --- | --- |",
    ]
    for head, one, other in (
        ("additive", "dpvd", "dpvd_fixed"),
        ("subset", "dpvd_subset", "dpvd_subset_fixed"),
        ("additive, any task", "dpvd_able", "dpvd_able_fixed"),
    ):
        for way in ("alone", "guarded"):
            if (one, way) not in judged.cells or (other, way) not in judged.cells:
                continue
            value = judged.difference((one, way), (other, way))
            word = "yes" if value.low > 0 else "no, the opposite" if value.high < 0 else "not decided"
            cells = [
                f"{judged.values(cell, way).mean():,.0f},"
                f" {judged.values(cell, way, 'reward_without_penalty').mean():,.0f},"
                f" {judged.values(cell, way, 'violators').mean():.2f}"
                for cell in (one, other)
            ]
            rows.append(f"| {head}, {way} | {cells[0]} | {cells[1]} | {_estimate(value)} | {word} |")
    return rows


def _transfer(results: Path) -> list[str]:
    path = results / "transfer.json"
    if not path.is_file():
        return []
    load = json.loads(path.read_text(encoding="utf-8"))["load_average"]
    lines = [
        "## Other sizes, without training again",
        "",
        *_text(
            f"""The DPVD policies trained with 12 users and 4 stations, as they are (surrogate rounds). Decision
            times are of one network at a time, one process, mean over all rounds, on a machine with a load average
            of {load:.1f} on two cores: `covey bench --only decision` measures them on a quiet one."""
        ),
        "",
        "| users | stations | blocks | area | layouts | guarded vs greedy, % | alone vs greedy, %"
        " | guarded vs coverage, % | violators, guarded / alone | ms: greedy | guarded | alone | bytes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        rewards = {name: np.array(values["reward"]) for name, values in row["values"].items()}
        names = {way: [n for n in rewards if n.endswith(way)] for way in ("guarded", "alone")}
        mean = {way: np.mean([rewards[n] for n in names[way]], axis=0) for way in names}

        def against(way: str, other: str, mean: Any = mean, rewards: Any = rewards) -> str:
            base = rewards[other]
            return _estimate(mean_interval(100.0 * (mean[way] - base) / abs(base.mean())))

        def average(key: str, found: list[str], row: Any = row) -> float:
            got = [row["policies"][n][key] for n in found]
            return float(np.mean([v["value"] if isinstance(v, dict) else v for v in got]))

        lines.append(
            f"| {row['users']:,} | {row['stations']} | {row['blocks']} | {row['side_m']} m | {len(row['layouts'])}"
            f" | {against('guarded', 'greedy')} | {against('alone', 'greedy')} | {against('guarded', 'coverage')}"
            f" | {average('violators_per_episode', names['guarded']):.2f}"
            f" / {average('violators_per_episode', names['alone']):.2f}"
            f" | {average('decision_ms', ['greedy']):.2f} | {average('decision_ms', names['guarded']):.2f}"
            f" | {average('decision_ms', names['alone']):.2f}"
            f" | {average('exchanged_bytes_per_decision', names['guarded']):,.0f} |"
        )
    return [*lines, ""]


def _relative(values: np.ndarray, base: np.ndarray) -> Estimate:
    return mean_interval(100.0 * (values - base) / abs(base.mean()))


def _agreement(reward: dict[str, np.ndarray], surrogate: dict[str, float]) -> tuple[int, int]:
    """Number of policy pairs that differ clearly on real rounds, and how many of them the surrogate orders alike."""
    clear = alike = 0
    for one, other in combinations(reward, 2):
        difference = mean_interval(reward[one] - reward[other])
        if difference.low > 0 or difference.high < 0:
            clear += 1
            alike += (difference.value > 0) == (surrogate[one] > surrogate[other])
    return clear, alike


def _real(results: Path, data: str, judged: Judged, prefix: str) -> list[str]:
    found: dict[str, dict[int, dict[str, float]]] = {}
    records = [one for one in cells_in(results, any_version=True).records("real") if one.job["data"] == data]
    for record in sorted(records, key=lambda record: record.job["name"]):
        found.setdefault(record.job["name"], {})[record.job["seed"]] = record.values
    if "greedy" not in found:
        return []
    layouts = sorted(set.intersection(*(set(values) for values in found.values())))
    reward = {policy: np.array([values[layout]["reward"] for layout in layouts]) for policy, values in found.items()}
    order = sorted(reward, key=lambda policy: -reward[policy].mean())
    surrogate = {}
    for policy in order:
        cell, _, way = policy.rpartition("_")
        key = (prefix + cell, way) if way in ("alone", "guarded") else (policy, "")
        surrogate[policy] = float(judged.values(*key)[0].mean() if key[1] else judged.values(*key).mean())
    tau = rank_correlation(
        np.array([reward[policy].mean() for policy in order]), np.array([surrogate[policy] for policy in order])
    )
    name = {"digits": "digits (`paper_digits`)", "cifar10": "CIFAR-10 (`paper`)"}[data]
    lines = [
        f"## Real rounds: {name}",
        "",
        *_text(
            f"""The same policies (learned ones of seed 0) inside real federated learning on {len(layouts)} held-out
            layouts, best first."""
        ),
        "",
        "| policy | reward, real | vs greedy, % | vs coverage, % | violators | served | final loss | surrogate |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for policy in order:
        mean = mean_interval(reward[policy])
        against = [
            "" if policy == other else _estimate(_relative(reward[policy], reward[other]))
            for other in ("greedy", "coverage")
        ]
        part = [
            np.mean([found[policy][layout][key] for layout in layouts]) for key in ("violators", "served", "final_loss")
        ]
        lines.append(
            f"| {policy} | {mean.value:,.0f} ± {mean.half_width:,.0f} | {against[0]} | {against[1]} | {part[0]:.2f}"
            f" | {part[1]:.1f} | {part[2]:.3f} | {surrogate[policy]:,.0f} |"
        )
    clear, alike = _agreement(reward, surrogate)
    note = f"""Rank correlation (Kendall) of the {len(order)} policies, surrogate against real: {tau:+.2f}. Of {clear}
        pairs of policies whose real rewards differ clearly (paired 95 % interval without 0), the surrogate orders
        {alike} as they are."""
    if tau < _PREDICTS:
        note += " That is not the same order: the surrogate does not tell these policies apart as real rounds do."
    if len(made_with(records)) > 1:
        note += f" Versions: {versions_text(records)}."
    return [*lines, "", *_text(note), ""]


def draw(results: Path) -> Figure:
    """Reward against greedy on every layout for the references and the learned policies."""
    judged = Judged(results / "surrogate_paper.json")
    keys = [("random", ""), ("coverage", ""), ("local_search", ""), ("exact", "")]
    keys += [(cell, way) for cell in ("dpvd", "iql", "qmix") for way in ("guarded", "alone")]
    keys = [key for key in keys if key in judged.cells]
    base = judged.values("greedy", "")[0]
    with drawing_style(**{"axes.grid.axis": "x"}):
        figure = Figure(figsize=(9.6, 1.4 + 0.42 * len(keys)), layout="constrained")
        axes = figure.subplots()
        for row, key in enumerate(keys):
            values = 100.0 * (judged.values(*key) - base) / abs(base.mean())
            for seed, line in enumerate(values):
                offset = 0.0 if len(values) == 1 else 0.6 * (seed / (len(values) - 1) - 0.5)
                axes.scatter(
                    line, np.full(len(line), row + offset), s=7, color=OKABE_ITO[seed % 6], alpha=0.5, linewidths=0
                )
            estimate = mean_interval(values.mean(axis=0))
            axes.errorbar(
                estimate.value, row, xerr=[[estimate.value - estimate.low], [estimate.high - estimate.value]],
                color=INK, marker="o", markersize=5, capsize=4, zorder=5,
            )  # fmt: skip
        axes.axvline(0.0, color=MUTED, linewidth=1.0)
        names = [f"{TITLES[cell]}, {way}" if way else cell for cell, way in keys]
        axes.set_yticks(range(len(keys)), names)
        axes.invert_yaxis()
        axes.set_xscale("symlog", linthresh=5.0)
        axes.set_xticks([-100, -20, -5, -2, 0, 2, 5], ["-100", "-20", "-5", "-2", "0", "2", "5"])
        axes.set(
            xlabel="reward against greedy, % (positive is better)",
            title=f"paper, {judged.layouts} held-out layouts; colours are seeds, bars 95 % intervals of the mean",
        )
        return figure


def write_page(results: Path) -> None:
    """Write the page and its plot."""
    Path("docs/policies.md").write_text(render_page(results), encoding="utf-8")
    write_atomically(Path("docs/images/policies.png"), png(draw(results)))
