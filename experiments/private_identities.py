"""What do private identities buy? Clustering and test accuracy of whole runs against the privacy that they cost.

    python experiments/private_identities.py --seeds 5
    python experiments/private_identities.py --judged --seeds 20

Every (data, mode, seed) is one cell of the study's store; finished cells are not computed again, so that the script
can be stopped and started at will. Seeds count from 1000, judged ones from 5000. At the end the script writes
docs/images/private_identities.png; the table is a section of docs/identities.md (`experiments/identities.py page`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from clustering_cells import DEVELOPMENT
from private_identities_page import JUDGED, draw, read_runs
from study import compute, options_of

from covey import simulate
from covey.figures.cells import Cell
from covey.files import write_atomically
from covey.jobs import Values
from covey.report.pictures import png
from covey.scenario import PAPER_START

_VECTORS = "clustering.rule=loss_vectors"
DATA: dict[str, tuple[str, ...]] = {
    "mixes": (),
    "rotation": ("data.partition=rotation", "data.mixes=default"),
}


def _charged(identity: str, rho: float, *others: str) -> tuple[str, ...]:
    return f"privacy.identity={identity}", f"privacy.identity_rho={rho}", *others


MODES: dict[str, tuple[str, ...]] = {
    "raw": (),
    "raw_vectors": (_VECTORS,),
    **{f"noisy_max_{rho}": _charged("noisy_max", rho) for rho in (0.005, 0.02, 0.1)},
    **{f"noisy_losses_{rho}": _charged("noisy_losses", rho, _VECTORS) for rho in (0.005, 0.02, 0.1)},
    **{f"noisy_contrasts_{rho}": _charged("noisy_contrasts", rho, _VECTORS) for rho in (0.005, 0.02, 0.1)},
    # The 0.28 that 14 announcements of 0.02 cost, in fewer.
    "noisy_contrasts_0.056_every_3": _charged("noisy_contrasts", 0.056, _VECTORS, "clustering.announce_every=3"),
    "noisy_contrasts_0.07_first_4": _charged("noisy_contrasts", 0.07, _VECTORS, "clustering.announce_rounds=4"),
    "from_release": ("privacy.identity=from_release",),
    "fesem": ("clustering.rule=fesem",),
    "kmeans_debiased": ("clustering.rule=kmeans_debiased",),
    "oracle": ("clustering.rule=oracle",),
}


@dataclass(frozen=True)
class PrivateRun(Cell):
    """A run under `greedy` in one of the modes."""

    data: str = ""
    mode: str = ""
    kind: ClassVar[str] = "private_identities"

    @property
    def label(self) -> str:
        """Data, mode and seed."""
        return f"{self.data} {self.mode} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Curves by round; rho of the user that paid most, in all and for identities; unprotected announcements."""
        history = simulate(self.loaded, "greedy", seed=self.seed)
        ledger = history.ledger
        return {
            "clustering_accuracy": history.column("clustering_accuracy").tolist(),
            "accuracy": history.column("accuracy").tolist(),
            "rho_mean": float(ledger.rho.mean()),
            "rho_max": float(ledger.rho.max()),
            "rho_identity_max": float(ledger.spent["identity"].max()),
            "unprotected_max": int(ledger.unprotected.max()),
        }


def cell(data: str, mode: str, seed: int) -> PrivateRun:
    """The cell with these names; all runs have the paper's start, the default when they were computed."""
    return PrivateRun("paper_digits", (*PAPER_START, *DATA[data], *MODES[mode]), seed, data, mode)


def main() -> None:
    """Compute the missing cells, then draw the picture."""
    parser = options_of(__doc__, Path("results/private_identities"))
    parser.add_argument("--data", nargs="+", choices=DATA, default=[*DATA])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=[*MODES])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--judged", action="store_true", help="judged seeds in place of development seeds")
    parser.add_argument("--picture", type=Path, default=Path("docs/images/private_identities.png"))
    options = parser.parse_args()
    first = JUDGED if options.judged else DEVELOPMENT
    # Seed by seed, so that an early stop leaves complete pairs.
    cells = [
        cell(data, mode, seed)
        for seed in range(first, first + options.seeds)
        for data in options.data
        for mode in options.modes
    ]
    compute(cells, options.out, options)
    write_atomically(options.picture, png(draw(read_runs(options.out))))


if __name__ == "__main__":
    main()
