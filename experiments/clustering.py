"""Which identification rule finds the groups? Accuracy by round, rule and data set, over many seeds.

    python experiments/clustering.py --data digits cifar10 --seeds 10 --out results/clustering

Every (data, rule, seed) is one cell of the study's store; finished cells are cached, so that the script can be
interrupted and resumed. At the end it writes accuracy.csv, accuracy.png and the documentation page
docs/clustering.md from the cells alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from clustering_page import write_tables
from study import compute, options_of

from covey import simulate
from covey.figures.cells import Cell
from covey.jobs import Values

RULES = {
    "gradient_loss_0.2": ["clustering.rule=gradient_loss", "clustering.similarity_weight=0.2"],
    "gradient_loss_0.5": ["clustering.rule=gradient_loss", "clustering.similarity_weight=0.5"],
    "loss": ["clustering.rule=loss"],
    "kmeans": ["clustering.rule=kmeans"],
    "printed_sign_0.2": ["clustering.rule=printed_sign", "clustering.similarity_weight=0.2"],
}
DATA = {
    "digits": ("quick", []),
    "digits_no_noise": ("quick", ["privacy.noise=off"]),
    "digits_rotation": ("quick", ["data.partition=rotation"]),
    "cifar10": ("paper", []),
}
COLUMNS = ("clustering_accuracy", "adjusted_rand_index", "loss", "accuracy")


@dataclass(frozen=True)
class RuleRun(Cell):
    """A run under `greedy` with one of the rules."""

    data: str = ""
    rule: str = ""
    kind: ClassVar[str] = "clustering"

    @property
    def label(self) -> str:
        """Data, rule and seed."""
        return f"{self.data} {self.rule} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """The columns of the run."""
        history = simulate(self.loaded, "greedy", seed=self.seed)
        return {name: history.column(name).tolist() for name in COLUMNS}


def cell(data: str, rule: str, seed: int) -> RuleRun:
    """The cell with these names."""
    preset, overrides = DATA[data]
    return RuleRun(preset, (*overrides, *RULES[rule]), seed, data, rule)


def main() -> None:
    """Compute the missing cells, then write the tables."""
    parser = options_of(__doc__, Path("results/clustering"))
    parser.add_argument("--data", nargs="+", choices=DATA, default=["digits"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--page", type=Path, default=Path("docs/clustering.md"))
    options = parser.parse_args()
    # Seed by seed, so that an early stop leaves complete pairs.
    cells = [cell(data, rule, seed) for data in options.data for seed in range(options.seeds) for rule in RULES]
    compute(cells, options.out, options)
    write_tables(options.out, options.page)


if __name__ == "__main__":
    main()
