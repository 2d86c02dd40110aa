"""How much of a user's score comes from the similarity, and how often the similarity alone is right?

    python experiments/similarity.py --seeds 20

For each scenario the run uses the corrected rule; before every round the losses and similarities of
all users are looked at. Writes results/clustering/similarity.json, which docs/clustering.md shows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from covey import Simulation, load_scenario
from covey.learning import matching
from covey.simulation.storage import write_atomically

SCENARIOS = {
    "digits, label mixes": [],
    "digits, label mixes, noise off": ["privacy.noise=off"],
    "digits, rotated": ["data.partition=rotation"],
}
ROUNDS = (2, 5, 10)


def look(overrides: list[str], seed: int) -> dict[int, dict[str, float]]:
    """Spread over tasks of both parts of the score, and accuracy of each part alone, before some rounds."""
    found: dict[int, dict[str, float]] = {}
    with Simulation(load_scenario("quick", overrides), "greedy", seed=seed) as simulation:
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
    """Look at all scenarios and seeds, and save the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("results/clustering"))
    options = parser.parse_args()
    means: dict[str, dict[str, dict[str, float]]] = {}
    for name, overrides in SCENARIOS.items():
        looks = [look(overrides, seed) for seed in range(options.seeds)]
        means[name] = {
            str(turn): {key: float(np.mean([one[turn][key] for one in looks])) for key in looks[0][turn]}
            for turn in ROUNDS
        }
    report = {"seeds": options.seeds, "means": means}
    write_atomically(options.out / "similarity.json", (json.dumps(report, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
