"""Contribution of the similarity to a user's score, and accuracy of the similarity alone.

    python experiments/similarity.py --seeds 20

For each scenario the run uses the corrected rule; before every round the losses and similarities of
all users are recorded. Writes results/clustering/similarity.json, which docs/clustering.md shows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from study import compute, options_of

from covey import Simulation
from covey.figures.cells import Cell, cells_in
from covey.files import write_atomically
from covey.identification import matching
from covey.jobs import Values
from covey.scenario import PAPER_START, Scenario

SCENARIOS = {
    "digits, label mixes": PAPER_START,
    "digits, label mixes, noise off": (*PAPER_START, "privacy.noise=off"),
    "digits, rotated": (*PAPER_START, "data.partition=rotation"),
}
ROUNDS = (2, 5, 10)


@dataclass(frozen=True)
class Look(Cell):
    """Both parts of the score before some rounds of a run."""

    kind: ClassVar[str] = "similarity"

    @property
    def label(self) -> str:
        """Scenario and seed."""
        return " ".join((self.scenario, *self.overrides, f"seed {self.seed}"))

    def compute(self, folder: Path) -> Values:
        """Parts of the score by round."""
        return {str(turn): values for turn, values in look(self.loaded, self.seed).items()}


def look(scenario: Scenario, seed: int) -> dict[int, dict[str, float]]:
    """Spread over tasks of both parts of the score, and accuracy of each part alone, before some rounds."""
    found: dict[int, dict[str, float]] = {}
    with Simulation(scenario, "greedy", seed=seed) as simulation:
        world = simulation.world
        while simulation.state.round < max(ROUNDS):
            simulation.play()
            state = simulation.state
            if state.round + 1 not in ROUNDS:
                continue
            world.engine.publish(state.models, state.movements)
            losses, similarity = world.engine.score(state.round, batch=0, gradients=True)
            group = matching(state.identities, world.groups, world.tasks)
            found[state.round + 1] = {
                "similarity_spread": float(np.median(np.ptp(similarity, axis=1))),
                "loss_spread": float(np.median(np.ptp(losses, axis=1))),
                "right_by_similarity": float(np.mean(group[similarity.argmax(1)] == world.groups)),
                "right_by_printed_similarity": float(np.mean(group[similarity.argmin(1)] == world.groups)),
                "right_by_loss": float(np.mean(group[losses.argmin(1)] == world.groups)),
            }
    return found


def main() -> None:
    """Measure all scenarios and seeds, and save the means."""
    parser = options_of(__doc__, Path("results/clustering"))
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    cells = {
        name: [Look("paper_digits", overrides, seed) for seed in range(options.seeds)]
        for name, overrides in SCENARIOS.items()
    }
    compute([cell for group in cells.values() for cell in group], options.out, options)
    store = cells_in(options.out, any_version=options.any_version)
    means: dict[str, dict[str, dict[str, float]]] = {}
    for name, group in cells.items():
        looks = [store[cell] for cell in group]
        means[name] = {
            str(turn): {key: float(np.mean([one[str(turn)][key] for one in looks])) for key in looks[0][str(turn)]}
            for turn in ROUNDS
        }
    report = {"seeds": options.seeds, "means": means}
    write_atomically(options.out / "similarity.json", (json.dumps(report, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
