"""Task models and personal models, Ditto and MR-MTL, under noise: test accuracy of whole runs on digits.

    python experiments/personal.py --data rotation dirichlet --seeds 20

Every (data, mode, seed) is one cell of the study's store; finished cells are not computed again, so the script can be
stopped and started at will. At the end it prints a table and keeps it as table.md. Seeds count from 1000.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from study import compute, options_of

from covey import simulate
from covey.evaluation import mean_interval
from covey.figures.cells import Cell, cells_in
from covey.files import write_atomically
from covey.jobs import Values

_FIRST_SEED = 1000
#: Two models for users of more than two kinds, so that a task's model has to serve different users.
_SHARED = ["data.mixes=default", "network.tasks=2", "network.tasks_per_station=2", "training.rounds=30"]
DATA = {
    "rotation": [*_SHARED, "data.partition=rotation", "data.groups=4"],
    "dirichlet": [
        *_SHARED, "data.partition=dirichlet", "data.groups=12", "data.samples_min=40", "data.samples_max=60",
        "data.test_samples=20",
    ],
}  # fmt: skip
_PULLS = ("0", "0.1", "0.3", "1")
MODES: dict[str, list[str]] = {
    "none": [],
    "ditto 0.1": ["training.personal=ditto"],
    **{f"mr_mtl {pull}": ["training.personal=mr_mtl", f"training.personal_pull={pull}"] for pull in _PULLS},
}


@dataclass(frozen=True)
class PersonalRun(Cell):
    """A run under `greedy` in one of the modes."""

    data: str = ""
    mode: str = ""
    kind: ClassVar[str] = "personal"
    #: Users do not take turns, as when the cells were computed.
    pinned: ClassVar[tuple[str, ...]] = ("clustering.turns=false",)

    @property
    def label(self) -> str:
        """Data, mode and seed."""
        return f"{self.data} {self.mode} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Accuracies after the last round, on test samples, and what the user that lost most has spent."""
        history = simulate(self.loaded, "greedy", seed=self.seed)
        last, epsilon = history.records[-1], float(history.ledger.epsilon("exact").max())
        personal = {} if np.isnan(last.personal_accuracy) else {"personal": last.personal_accuracy}
        return {"task": last.accuracy, "majority": last.majority, "epsilon_max": epsilon, **personal}


def cell(data: str, mode: str, seed: int) -> PersonalRun:
    """The cell of these names."""
    return PersonalRun("paper_digits", (*DATA[data], *MODES[mode]), seed, data, mode)


def table(found: dict[tuple[str, str], list[Values]]) -> str:
    """A row for each data and mode: both accuracies, what they gain over two other modes, and epsilon."""
    head = (
        "users", "personal", "pull", "task's model", "own model", "own less task's of `none`", "own less own of pull 0",
        "largest epsilon",
    )  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for (data, mode), runs in found.items():
        task = np.array([run["task"] for run in runs])
        own = np.array([run.get("personal", np.nan) for run in runs])
        part, _, pull = mode.partition(" ")
        gain = own - np.array([run["task"] for run in found[data, "none"]])
        alone = np.array([run["personal"] for run in found[data, "mr_mtl 0"]])
        pulled = own - alone if part == "mr_mtl" and pull != "0" else np.full(len(runs), np.nan)
        epsilon = np.mean([run["epsilon_max"] for run in runs])
        cells = (data, f"`{part}`", pull, *(_spread(values) for values in (task, own, gain, pulled)), f"{epsilon:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """Mean and half of its 95 % interval; nothing where there are no values."""
    if np.isnan(values).any():
        return ""
    mean = mean_interval(values)
    return f"{mean.value:.3f} ± {mean.half_width:.3f}"


def main() -> None:
    """Compute what is missing, then print the table."""
    parser = options_of(__doc__, Path("results/personal"))
    parser.add_argument("--data", nargs="+", choices=DATA, default=[*DATA])
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    seeds = range(_FIRST_SEED, _FIRST_SEED + options.seeds)
    # Seed by seed, so that an early stop leaves complete pairs.
    cells = [cell(data, mode, seed) for seed in seeds for data in options.data for mode in MODES]
    compute(cells, options.out, options)
    store = cells_in(options.out, any_version=options.any_version)
    found = {(data, mode): [store[cell(data, mode, seed)] for seed in seeds] for data in options.data for mode in MODES}
    write_atomically(options.out / "table.md", (table(found) + "\n").encode())
    print(table(found))


if __name__ == "__main__":
    main()
