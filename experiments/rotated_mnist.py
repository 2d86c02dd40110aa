"""A published setting played by covey's own rounds: MNIST turned by eight angles, 128 users, four models.

    covey data fetch mnist
    python experiments/rotated_mnist.py runs --seeds 5     # half a minute a run on one core
    python experiments/rotated_mnist.py page               # docs/rotated_mnist.md

The setting is that of the notebook which comes with Kim, Kim and De Veciana, "Clustered Federated Learning via
Gradient-based Partitioning" (ICML 2024); the page says where covey differs. Finished cells of the study's store are not
computed again. `--rules` takes any registered identification rule, or one's own as module:attribute.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from rotated_mnist_page import GLOBAL, render_page
from study import compute, options_of

from covey import Simulation
from covey.data import Dataset, UserData, load_dataset
from covey.data.turns import turn_images, turns_of_groups
from covey.errors import ScenarioError
from covey.figures.cells import Cell
from covey.files import write_atomically
from covey.identification import adjusted_rand_index
from covey.jobs import Values
from covey.scenario import PAPER_START, Scenario
from covey.scenario.schema import Data
from covey.seeding import generator

SCENARIO = Path(__file__).with_suffix(".toml")
TRAIN_SHARE = 0.7
RULES = ("loss", "loss_vectors")


@dataclass(frozen=True)
class RotatedRun(Cell):
    """A whole run under an identification rule, or with one model for all."""

    rule: str = ""
    kind: ClassVar[str] = "rotated_mnist"

    @property
    def label(self) -> str:
        """Rule and seed."""
        return f"{self.rule} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Accuracy and groups by round."""
        return play(self.loaded, deal(mnist(), self.loaded, self.seed), self.seed)


def rotated_run(rule: str, seed: int) -> RotatedRun:
    """The cell of this rule; `GLOBAL` is one model for all."""
    changes = ("network.tasks=1", "network.tasks_per_station=1") if rule == GLOBAL else (f"clustering.rule={rule}",)
    return RotatedRun(str(SCENARIO), (*PAPER_START, *changes), seed, rule)


@cache
def mnist() -> Dataset:
    """MNIST, read once."""
    return load_dataset(Data(name="mnist"))


def deal(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """What the users hold: consecutive parts of equal size, turned, each split at random into training and test.

    Pixels are in 0..1. The groups are the angles of `data.rotations`, each with the same number of users.
    """
    images, users, groups = dataset.x.astype(np.float32) / 255, scenario.network.users, scenario.groups
    # The last part takes what division leaves over.
    of_image = np.minimum(np.arange(len(images)) // (len(images) // groups), groups - 1)
    turn_images(images, of_image, turns_of_groups(scenario), np.zeros(1, np.float32))
    train, test = [], []
    for user, rows in enumerate(np.array_split(np.arange(len(images)), users)):
        mixed = generator(seed, "partition", user=user).permutation(rows)
        count = int(TRAIN_SHARE * len(rows))
        train.append((images[mixed[:count]], dataset.y[mixed[:count]]))
        test.append((images[mixed[count:]], dataset.y[mixed[count:]]))
    members = np.arange(users) * groups // users
    return UserData.from_users(train, test=test, groups=members, classes=dataset.classes)


def play(scenario: Scenario, data: UserData, seed: int) -> Values:
    """One run: mean over users of the accuracy on their own test samples after 0, 1, ... updates, and the groups found.

    A user's model is that of the task under which it took part in the last update. Groups are compared with the pairs
    of neighbouring angles, since as many models as pairs are trained.
    """
    pairs = data.groups // 2
    with Simulation(scenario, "greedy", seed=seed, data=data) as simulation:
        accuracy, index, used = [float(simulation.history.start["accuracy"])], [], []
        while not simulation.done:
            record = simulation.play()
            left_out = int((record.users.joined == 0).sum())
            if left_out:
                raise ScenarioError(f"{left_out} users were not served; raise network.blocks")
            accuracy.append(float(record.users.accuracy.mean()))
            index.append(adjusted_rand_index(record.users.identity, pairs))
            used.append(len(np.unique(record.users.identity)))
    return {"accuracy": accuracy, "adjusted_rand_index": index, "models_used": used}


def main() -> None:
    """Read the arguments and do what they ask for."""
    parser = options_of(__doc__, Path("results/rotated_mnist"))
    parser.add_argument("what", choices=("runs", "page"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--rules", nargs="+", default=[GLOBAL, *RULES], help=f"identification rules; {GLOBAL}: one model"
    )
    options = parser.parse_args()
    if options.what == "runs":
        cells = [rotated_run(rule, seed) for seed in range(options.seeds) for rule in options.rules]
        compute(cells, options.out, options)
    else:
        write_atomically(Path("docs/rotated_mnist.md"), render_page(options.out).encode())


if __name__ == "__main__":
    main()
