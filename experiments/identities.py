"""How good are private task identities? Announcements against their cost, then whole runs on digits and CIFAR-10.

    python experiments/identities.py announce                     # accuracy of announcements by rho, K and X
    python experiments/identities.py runs --data digits           # whole runs
    python experiments/identities.py runs --data cifar10 --seeds 3
    python experiments/identities.py page                         # docs/identities.md and its plots

Finished cells are cached in the study's store, so that every step can be interrupted and resumed. Runs are ordered by
seed over all modes, so that an early stop leaves complete pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from identities_page import MODES as NAMES
from identities_page import PLACES as TITLES
from identities_page import Announcements, Runs, render_page
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from study import compute, options_of

from covey import Simulation, load_scenario
from covey.data import load_dataset, partition
from covey.evaluation import mean_interval
from covey.federated import (
    bounded_scores,
    build_model,
    task_scores,
)
from covey.figures.cells import Cell
from covey.files import write_atomically
from covey.identification import best_score
from covey.identification.noisy_max import identity_noise_scale, noisy_identities, score_width
from covey.jobs import Values
from covey.report.palette import INK, MARKERS, MUTED, OKABE_ITO, drawing_style
from covey.report.pictures import png
from covey.scenario import PAPER_START, Scenario
from covey.seeding import generator

#: Costs of one announcement, three per decade.
RHO = tuple(round(10 ** (-4 + step / 3), 7) for step in range(13))
ROUNDS = (2, 8)
SEEDS = 10
#: Announcing users per cell, and noise draws per user.
USERS, DRAWS = 24, 500
#: One station with a block for each user and no limit on broadcasts: only the rate floor can exclude a user.
_ALL_SERVED = ["network.stations=1", "network.blocks=16", "network.users=16", "radio.downlink_limit_s=10.0"]
#: Origin of the models: changes to `quick`, tasks, samples per announcing user.
PLACES: dict[str, tuple[list[str], int, tuple[int, ...]]] = {
    **{
        f"swap{tasks}": (
            [
                f"network.tasks={tasks}", f"network.tasks_per_station={tasks}", "data.partition=label_swap",
                # Not used by label_swap, but the preset's are for four tasks.
                f"data.mixes=[{', '.join(['{0 = 1}'] * tasks)}]", *_ALL_SERVED,
            ],
            tasks,
            sizes,
        )
        for tasks, sizes in ((2, (25, 75, 150, 300)), (4, (25, 75, 150, 300)), (8, (25, 75, 150)))
    },
    "mix4": ([], 4, (25, 75, 150)),
}  # fmt: skip

PRESETS = {"digits": "paper_digits", "cifar10": "paper"}
MODES: dict[str, list[str]] = {
    "raw": [],
    "raw_all": ["clustering.batch=0"],
    # Rho so large that noise is negligible: isolates the effect of bounded scores.
    "bounded": ["privacy.identity=noisy_max", "privacy.identity_rho=1e9"],
    "noisy_0.005": ["privacy.identity=noisy_max", "privacy.identity_rho=0.005"],
    "noisy_0.02": ["privacy.identity=noisy_max", "privacy.identity_rho=0.02"],
    "noisy_0.1": ["privacy.identity=noisy_max", "privacy.identity_rho=0.1"],
    "noisy_0.02_seldom": [
        "privacy.identity=noisy_max", "privacy.identity_rho=0.02", "clustering.announce_every=3",
        "clustering.announce_rounds=9",
    ],
    "release": ["privacy.identity=from_release"],
    "release_9": ["privacy.identity=from_release", "clustering.announce_rounds=9"],
    "oracle": ["clustering.rule=oracle"],
}  # fmt: skip
PLAYED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # With `quick`, users identify their task with all their samples anyway.
    "digits": (("greedy", "coverage"), tuple(mode for mode in MODES if mode != "raw_all")),
    "cifar10": (("greedy",), ("raw", "noisy_0.02", "release", "raw_all")),
}


@dataclass(frozen=True)
class Announced(Cell):
    """Accuracy of announcements at one place, with the models of one oracle run."""

    place: str = ""
    kind: ClassVar[str] = "announcement"

    @property
    def label(self) -> str:
        """Place and seed."""
        return f"{self.place} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """After each of `ROUNDS`, by samples."""
        return announce(self.loaded, self.place, self.seed)


@dataclass(frozen=True)
class IdentityRun(Cell):
    """A whole run under a policy, with identities announced in one of the modes."""

    data: str = ""
    policy: str = ""
    mode: str = ""
    kind: ClassVar[str] = "identity_run"

    @property
    def label(self) -> str:
        """Data, policy, mode and seed."""
        return f"{self.data} {self.policy} {self.mode} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Accuracy by round, and privacy cost."""
        return play(self.loaded, self.policy, self.seed)


def announced(place: str, seed: int) -> Announced:
    """The cell of this place."""
    return Announced("paper_digits", (*PLACES[place][0], "clustering.rule=oracle", *PAPER_START), seed, place)


def identity_run(data: str, policy: str, mode: str, seed: int) -> IdentityRun:
    """The cell with these names; all runs have the paper's start, the only one when they were computed."""
    return IdentityRun(PRESETS[data], (*PAPER_START, *MODES[mode]), seed, data, policy, mode)


def announce(scenario: Scenario, place: str, seed: int) -> Values:
    """Accuracy of announcements with the models of one oracle run, after each of `ROUNDS`."""
    overrides, tasks, sizes = PLACES[place]
    rows: list[dict[str, Any]] = []
    with Simulation(scenario, "greedy", seed=seed) as simulation:
        for number in ROUNDS:
            while simulation.state.round < number:
                simulation.play()
            state = simulation.state
            for size in sizes:
                dealt = load_scenario("paper_digits", [
                    *overrides, f"network.users={tasks}", f"data.samples_min={size}", f"data.samples_max={size}",
                    "privacy.n_min=0.0",  # of uploads, which these users do not make
                ])  # fmt: skip
                found = _announcements(dealt, state.models, state.movements, seed)
                rows.append({"round": number, "samples": size, **found})
    return {"tasks": tasks, "rho": list(RHO), "rows": rows}


def _announcements(scenario: Scenario, models: np.ndarray, movements: np.ndarray, seed: int) -> dict[str, Any]:
    """Share of users that announce their own group's model: with noise at each rho, without noise, and raw.

    The users are dealt the digits anew, one user of each group at a time, so that all sizes meet the same models.
    """
    clustering, privacy = scenario.clustering, scenario.privacy
    size, tasks, weight = scenario.data.samples_min, scenario.network.tasks, clustering.similarity_weight
    bounded, losses, similarity, groups = [], [], [], []
    for deal in range(math.ceil(USERS / tasks)):
        # Seeds from 1,000 on partition data for announcing users, those below for training users.
        at = 1000 + 100 * seed + deal
        data = partition(load_dataset(scenario.data, groups=scenario.groups, seed=at), scenario, at)
        module = build_model(scenario.model, data.shape, len(data.classes))
        for user in range(data.users):
            rows = slice(int(data.offsets[user]), int(data.offsets[user + 1]))
            x, y = torch.from_numpy(data.x[rows].copy()), torch.from_numpy(data.y[rows].copy())
            bounded.append(
                bounded_scores(
                    module, models, movements, x, y, similarity_weight=weight, loss_bound=privacy.loss_bound,
                    slope_bound=scenario.training.clip,
                )
            )  # fmt: skip
            one = task_scores(module, models, movements, x, y, gradients=True)
            losses.append(one[0])
            similarity.append(one[1])
        groups.append(data.groups)
    scores, group = np.array(bounded), np.concatenate(groups)
    raw = best_score(np.array(losses), np.array(similarity), weight)
    width = score_width(weight, privacy.loss_bound, replaced=privacy.adjacency == "replace_one")
    normals = generator(seed, "identity_noise", user=size).standard_normal((DRAWS, len(group), 2, tasks))
    drawn, exact = [], []
    for rho in RHO:
        scale = identity_noise_scale(np.full(len(group), size), width, rho)
        named = noisy_identities(
            np.tile(scores, (DRAWS, 1)), np.tile(scale, DRAWS), normals.reshape(-1, 2, tasks)
        ).reshape(DRAWS, -1)
        drawn.append(float((named == group).mean()))
        # The noisy maximum selects task k with probability proportional to exp(score / scale).
        odds = np.exp((scores - scores.max(axis=1, keepdims=True)) / scale[:, None])
        exact.append(float((odds[np.arange(len(group)), group] / odds.sum(axis=1)).mean()))
    return {
        "users": len(group),
        "draws": DRAWS,
        "noisy": drawn,
        "expected": exact,
        "bounded": float((scores.argmax(axis=1) == group).mean()),
        "raw": float((raw == group).mean()),
        "chance": 1.0 / tasks,
    }


def play(scenario: Scenario, policy: str, seed: int) -> Values:
    """One whole run: accuracy and clustering accuracy by round, and privacy cost."""
    with Simulation(scenario, policy, seed=seed) as simulation:
        while not simulation.done:
            simulation.play()
        history, state, engine = simulation.history, simulation.state, simulation.world.engine
        # Locally a user may choose the model of least loss: without an announcement it costs nothing.
        engine.publish(state.models, state.movements)
        losses, _ = engine.score(state.round, batch=0, gradients=False)
        chosen = engine.evaluate(best_score(losses, np.zeros_like(losses), 0.0))
        at_home = float(chosen.test_correct.sum() / simulation.world.test_samples.sum())
    ledger = history.ledger
    return {
        "accuracy": history.column("accuracy").tolist(),
        "clustering_accuracy": history.column("clustering_accuracy").tolist(),
        "loss": history.column("loss").tolist(),
        "accuracy_at_home": at_home,
        "served": history.column("served").tolist(),
        "adjacency": ledger.adjacency,
        "delta": ledger.delta,
        "epsilon_max": float(ledger.epsilon("exact").max()),
        "epsilon_zcdp_max": float(ledger.epsilon("zcdp").max()),
        "rho_gradient_max": float(ledger.spent["gradient"].max()),
        "rho_identity_max": float(ledger.spent["identity"].max()),
        "announcements_max": int(ledger.announcements.max()),
        "unprotected_max": int(ledger.unprotected.max()),
    }


def draw_announcements(found: Announcements) -> Figure:
    """Accuracy against rho: a row for each round, a column for each place, a line for each number of samples."""
    sizes = sorted({size for place in TITLES for size in found.sizes(place)})
    style = {size: (OKABE_ITO[i], MARKERS[i]) for i, size in enumerate(sizes)}
    with drawing_style():
        figure = Figure(figsize=(11.4, 5.8), layout="constrained")
        grid = figure.subplots(len(found.rounds), len(TITLES), sharex=True, sharey=True)
        for row, number in zip(grid, found.rounds, strict=True):
            for axes, (place, title) in zip(row, TITLES.items(), strict=True):
                for size in found.sizes(place):
                    _draw_line(axes, found, (place, number, size), *style[size])
                chance = found.values(place, number, found.sizes(place)[0], "chance")[0]
                axes.axhline(chance, color=MUTED, linewidth=1.0, linestyle=":")
                axes.text(found.rho[-1], chance - 0.015, "chance", color=MUTED, ha="right", va="top", fontsize=8.5)
                axes.set(xscale="log", ylim=(0.0, 1.04), xlim=(found.rho[0] * 0.8, found.rho[-1] * 1.25))
                if number == found.rounds[0]:
                    axes.set_title(title)
                if number == found.rounds[-1]:
                    axes.set_xlabel("rho of one announcement")
            row[0].set_ylabel(f"after round {number}:\nown group's model announced")
        handles = [
            Line2D([], [], color=colour, marker=marker, markersize=5, label=f"{size} samples")
            for size, (colour, marker) in style.items()
        ]
        handles.append(Line2D([], [], color=INK, linestyle="--", linewidth=1.2, label="raw (same colours)"))
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        return figure


def _draw_line(axes: Any, found: Announcements, at: tuple[str, int, int], colour: str, marker: str) -> None:
    noisy = found.values(*at, "noisy")
    half = np.array([mean_interval(column).half_width for column in noisy.T])
    mean = noisy.mean(axis=0)
    axes.plot(found.rho, noisy.T, color=colour, alpha=0.15, linewidth=0.6)
    axes.fill_between(found.rho, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)
    axes.plot(found.rho, mean, color=colour, marker=marker, markersize=4, linewidth=1.5)
    axes.axhline(found.raw(*at), color=colour, linestyle="--", linewidth=1.2, alpha=0.9)


def draw_runs(digits: Runs, cifar10: Runs) -> Figure:
    """Accuracy of whole runs minus that of the same runs with raw identities, every seed."""
    panels = [(runs, policy) for runs in (digits, cifar10) for policy in runs.policies]
    modes = [mode for mode in NAMES if mode not in ("raw", "raw_all")]
    with drawing_style(**{"axes.grid.axis": "x"}):
        figure = Figure(figsize=(11.4, 3.6), layout="constrained")
        grid = figure.subplots(1, len(panels), sharex=True, sharey=True)
        for axes, (runs, policy) in zip(grid, panels, strict=True):
            axes.axvline(0.0, color=MUTED, linewidth=1.0)
            across = axes.get_yaxis_transform()
            for row, mode in enumerate(modes):
                if mode in runs.modes:
                    _draw_gaps(axes, row, runs.paired(policy, mode, "accuracy"))
                else:
                    axes.text(0.03, row, "not run", color=MUTED, va="center", fontsize=8.5, transform=across)
            title = {"digits": "digits", "cifar10": "CIFAR-10"}[runs.data]
            axes.set(
                title=f"{title}, {policy} (n = {len(runs.seeds(policy, 'raw'))})", xlabel="test accuracy minus raw"
            )
            axes.set_yticks(range(len(modes)), [NAMES[mode] for mode in modes])
        grid[0].invert_yaxis()
        return figure


def _draw_gaps(axes: Any, row: int, gaps: np.ndarray) -> None:
    spread = 0.5 * (np.arange(len(gaps)) / max(len(gaps) - 1, 1) - 0.5)
    axes.scatter(gaps, row + spread, s=11, color=OKABE_ITO[0], alpha=0.55, linewidths=0)
    # With two seeds the interval is too wide to draw; the page states it.
    if len(gaps) > 2:
        value = mean_interval(gaps)
        axes.errorbar(
            value.value, row, xerr=value.half_width, color=INK, marker="o", markersize=4.5, capsize=3.5, zorder=5
        )


def write_page(results: Path) -> None:
    """Write the page and its plots from the results alone."""
    digits, cifar10 = Runs(results, "digits"), Runs(results, "cifar10")
    write_atomically(Path("docs/identities.md"), render_page(results).encode())
    write_atomically(Path("docs/images/identities.png"), png(draw_announcements(Announcements(results))))
    write_atomically(Path("docs/images/identities_runs.png"), png(draw_runs(digits, cifar10)))


def main() -> None:
    """The command line."""
    parser = options_of(__doc__, Path("results/identities"))
    parser.add_argument("what", choices=("announce", "runs", "page"))
    parser.add_argument("--data", choices=tuple(PRESETS), default="digits")
    parser.add_argument("--seeds", type=int, default=20, help="seeds of whole runs")
    options = parser.parse_args()
    if options.what == "announce":
        compute([announced(place, seed) for seed in range(SEEDS) for place in PLACES], options.out, options)
    elif options.what == "runs":
        policies, modes = PLAYED[options.data]
        cells = [
            identity_run(options.data, policy, mode, seed)
            for seed in range(options.seeds)
            for policy in policies
            for mode in modes
        ]
        compute(cells, options.out, options)
    else:
        write_page(options.out)


if __name__ == "__main__":
    main()
