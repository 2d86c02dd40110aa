"""Do loss vectors find the groups, raw and charged? Clustering and test accuracy of whole runs on digits.

    python experiments/loss_vectors.py --data mixes rotation --seeds 30

Every (data, mode, seed) is one cell of the study's store; finished cells are not computed again, so the script can be
stopped and started at will. At the end it prints a table and keeps it as table.md. Seeds count from 1000: they were
used to choose the settings.
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
from covey.scenario import PAPER_START

_FIRST_SEED = 1000
_VECTORS = "clustering.rule=loss_vectors"
DATA = {"mixes": [], "rotation": ["data.partition=rotation"]}


def _charged(identity: str, rho: float, *others: str) -> list[str]:
    return [_VECTORS, f"privacy.identity={identity}", f"privacy.identity_rho={rho}", *others]


MODES: dict[str, list[str]] = {
    "raw": [_VECTORS],
    "losses_0.02": _charged("noisy_losses", 0.02),
    "losses_0.1": _charged("noisy_losses", 0.1),
    "contrasts_0.02": _charged("noisy_contrasts", 0.02),
    "contrasts_0.1": _charged("noisy_contrasts", 0.1),
    # The 0.28 that 14 announcements of 0.02 cost, in fewer.
    "contrasts_0.056_every_3": _charged("noisy_contrasts", 0.056, "clustering.announce_every=3"),
    "contrasts_0.07_first_4": _charged("noisy_contrasts", 0.07, "clustering.announce_rounds=4"),
    "contrasts_0.28_once": _charged("noisy_contrasts", 0.28, "clustering.announce_rounds=1"),
    "loss": ["clustering.rule=loss"],
    "noisy_max_0.02": ["privacy.identity=noisy_max", "privacy.identity_rho=0.02"],
    "oracle": ["clustering.rule=oracle"],
}
COLUMNS = ("clustering_accuracy", "accuracy")


@dataclass(frozen=True)
class VectorRun(Cell):
    """A run under `greedy` in one of the modes."""

    data: str = ""
    mode: str = ""
    kind: ClassVar[str] = "loss_vectors"

    @property
    def label(self) -> str:
        """Data, mode and seed."""
        return f"{self.data} {self.mode} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """The columns of the run, and what identities cost."""
        history = simulate(self.loaded, "greedy", seed=self.seed)
        spent = float(history.ledger.spent["identity"].max())
        return {"rho_identity_max": spent, **{name: history.column(name).tolist() for name in COLUMNS}}


def cell(data: str, mode: str, seed: int) -> VectorRun:
    """The cell of these names; all runs have the paper's start, the default when they were computed."""
    return VectorRun("paper_digits", (*PAPER_START, *DATA[data], *MODES[mode]), seed, data, mode)


def table(found: dict[tuple[str, str], list[Values]]) -> str:
    """A row for each data and mode: clustering accuracy by round, share of perfect runs, accuracy, rho."""
    head = ("data", "mode", "n", "round 2", "round 5", "round 15", "perfect", "accuracy", "rho of identities")
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for (data, mode), runs in found.items():
        groups, last = np.array([run["clustering_accuracy"] for run in runs]), [run["accuracy"][-1] for run in runs]
        spread = [f"{mean.value:.3f} +- {mean.half_width:.3f}" for mean in map(mean_interval, groups[:, [1, 4, -1]].T)]
        accuracy = mean_interval(np.array(last))
        rho = np.mean([run["rho_identity_max"] for run in runs])
        cells = (data, mode, str(len(runs)), *spread, f"{np.mean(groups[:, -1] == 1.0):.2f}",
                 f"{accuracy.value:.3f} +- {accuracy.half_width:.3f}", f"{rho:.2f}")  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Compute what is missing, then print the table."""
    parser = options_of(__doc__, Path("results/loss_vectors"))
    parser.add_argument("--data", nargs="+", choices=DATA, default=[*DATA])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=[*MODES])
    parser.add_argument("--seeds", type=int, default=30)
    options = parser.parse_args()
    seeds = range(_FIRST_SEED, _FIRST_SEED + options.seeds)
    # Seed by seed, so that an early stop leaves complete pairs.
    cells = [cell(data, mode, seed) for seed in seeds for data in options.data for mode in options.modes]
    compute(cells, options.out, options)
    store = cells_in(options.out, any_version=options.any_version)
    found = {
        (data, mode): [store[cell(data, mode, seed)] for seed in seeds]
        for data in options.data
        for mode in options.modes
    }
    write_atomically(options.out / "table.md", (table(found) + "\n").encode())
    print(table(found))


if __name__ == "__main__":
    main()
