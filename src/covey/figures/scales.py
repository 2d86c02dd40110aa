"""Sizes of the experiments: `quick` on embedded digits, `full` on CIFAR-10 and FEMNIST."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Settings = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Scale:
    """Sizes and budgets of all figures.

    scenario: of Figs. 2 to 9; second: scenario of Fig. 10; seeds: default number; learner: settings of every training;
    rates: step sizes tried for every method; tuning_epochs, tuning_seed: of every trial; literal_epochs: of the
    paper's own loop; users, second_users: of Figs. 4 and 10; leakage_factors: of Fig. 8, times the scenario's own
    weight; layouts: held-out ones of a trained policy; noise_factors: times the scenario's noise variance; sizes:
    (users, stations, blocks, side in metres) for transfer; real: settings of trainings with real rounds inside;
    real_seeds: of those.
    """

    name: str
    scenario: str
    second: str
    seeds: int
    learner: Settings
    rates: tuple[float, ...]
    tuning_epochs: int
    tuning_seed: int
    literal_epochs: int
    users: tuple[int, ...]
    second_users: tuple[int, ...]
    leakage_factors: tuple[float, ...]
    layouts: int
    noise_factors: tuple[float, ...]
    sizes: tuple[tuple[int, int, int, int], ...]
    real: Settings
    real_seeds: int


SCALES = {
    "quick": Scale(
        name="quick",
        scenario="quick",
        second="quick",
        seeds=3,
        learner=(
            ("epochs", 40), ("networks", 16), ("updates", 20), ("batch", 64), ("validate_every", 10),
            ("validation", 32),
        ),
        rates=(3e-3, 6e-3),
        tuning_epochs=20,
        tuning_seed=99,
        literal_epochs=60,
        users=(4, 12),
        second_users=(4, 12),
        leakage_factors=(1.0, 50.0),
        layouts=10,
        noise_factors=(0.0, 1.0, 16.0, 256.0),
        sizes=((12, 4, 4, 500), (24, 4, 4, 500), (48, 8, 4, 700)),
        real=(("epochs", 4), ("networks", 4), ("updates", 15), ("validate_every", 4), ("validation", 2)),
        real_seeds=1,
    ),
    "full": Scale(
        name="full",
        scenario="paper",
        second="paper_femnist",
        seeds=10,
        learner=(("epochs", 80),),
        rates=(1e-3, 3e-3, 6e-3),
        tuning_epochs=40,
        tuning_seed=99,
        literal_epochs=300,
        users=(4, 8, 12),
        second_users=(4, 12),
        leakage_factors=(0.05, 1.0, 50.0),
        layouts=20,
        noise_factors=(0.0, 1.0, 4.0, 16.0, 64.0, 256.0),
        sizes=(
            (12, 4, 4, 500), (12, 8, 4, 500), (100, 4, 8, 1000), (100, 16, 8, 1000), (1000, 4, 16, 1000),
            (1000, 16, 16, 2000),
        ),
        real=(("epochs", 20), ("networks", 6), ("updates", 30), ("validate_every", 10), ("validation", 4)),
        real_seeds=5,
    ),
}  # fmt: skip
