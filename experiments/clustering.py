"""Do runs find the groups? Whole runs by data, variant, policy and seed, and the page made from them.

    python experiments/clustering.py --development                     # a few seeds, of cheap data
    python experiments/clustering.py --judged --data digits campus     # the seeds that verdicts are made from
    python experiments/clustering.py                                   # the page and its plot alone

Every (data, variant, policy, seed) is one cell of the study's store; finished cells are not computed again, so that
the script can be stopped and started at will. Settings were chosen on development seeds, which count from 1000; judged
seeds count from 9000 and are computed once, with settings that no longer change. At the end the script writes
accuracy.csv, accuracy.png and docs/clustering.md from the cells alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from clustering_page import DEVELOPMENT, JUDGED, write_page
from study import compute, forget, options_of

from covey import History, simulate
from covey.figures.cells import Cell
from covey.jobs import Values
from covey.scenario import PAPER_START

VARIANTS: dict[str, tuple[str, ...]] = {
    "new": ("clustering.start=random", "clustering.rescue=true"),
    "paper_start": PAPER_START,
    "release": ("clustering.start=release", "clustering.rescue=true"),
    # As published, without a start and a rescue that are covey's own.
    "loss": ("clustering.rule=loss", *PAPER_START),
    # Rules that neither start nor offers apply to.
    "loss_vectors": ("clustering.rule=loss_vectors", *PAPER_START),
    "oracle": ("clustering.rule=oracle", *PAPER_START),
}
#: Variants that the verdicts need, under both policies; the others under `greedy` alone.
MAIN = ("new", "paper_start", "oracle")
POLICIES = ("greedy", "coverage")


@dataclass(frozen=True)
class Setting:
    """A data set of the study: a preset and its changes; judged: number of seeds; variants: that are run on it."""

    preset: str
    changes: tuple[str, ...] = ()
    judged: int = 60
    variants: tuple[str, ...] = tuple(VARIANTS)
    policies: tuple[str, ...] = POLICIES
    cheap: bool = True


#: Label mixes of up to six groups of digits; neighbours share a class.
_MIXES = ("{0 = 2, 1 = 1}", "{1 = 1, 2 = 2}", "{3 = 2, 4 = 1}", "{4 = 1, 5 = 2}", "{6 = 2, 7 = 1}", "{8 = 2, 9 = 1}")


def _unknown_groups(groups: int, *changes: str) -> Setting:
    """Digits of `groups` label mixes, about three users each, and stations that run all models."""
    own = (
        # At least as many users as models.
        f"network.users={max(3 * groups, 8)}", f"data.mixes=[{', '.join(_MIXES[:groups])}]", "data.samples_min=35",
        "data.samples_max=50", "data.test_samples=20", "radio.downlink_rate_bps=7e7", *changes,
    )  # fmt: skip
    return Setting("paper_digits", own, judged=20, variants=("new",))


#: Five local steps, and the noise cap that makes them cost what one step costs.
_STEPS = ("training.steps=5",)
_FEW = ("data.mixes=default", "data.samples_min=30", "data.samples_max=40")
_STEPPED: dict[str, tuple[str, ...]] = {
    "digits": ("privacy.v_max=60",),
    "digits_noise_4": ("privacy.v_max=240",),
    "digits_noise_16": ("privacy.v_max=960",),
    "digits_rotation": ("privacy.v_max=60", "data.partition=rotation", "data.mixes=default"),
    "digits_label_swap": ("privacy.v_max=60", "data.partition=label_swap", "data.mixes=default"),
    "digits_dirichlet": ("privacy.v_max=60", "data.partition=dirichlet", *_FEW),
    "digits_7_3_1_1": ("privacy.v_max=60", "data.group_sizes=[7, 3, 1, 1]", *_FEW[1:]),
}
#: The noise of the preset `paper` on generated data.
_LOUD = ("privacy.v_max=12", "reward.leakage_weight=2e7")
DATA: dict[str, Setting] = {
    "digits": Setting("paper_digits"),
    "digits_noise_4": Setting("paper_digits", ("privacy.v_max=48",), variants=MAIN),
    "digits_noise_16": Setting("paper_digits", ("privacy.v_max=192",), variants=MAIN),
    "digits_rotation": Setting("paper_digits", ("data.partition=rotation", "data.mixes=default")),
    "digits_label_swap": Setting(
        "paper_digits", ("data.partition=label_swap", "data.mixes=default"), variants=(*MAIN, "release")
    ),
    "digits_dirichlet": Setting(
        "paper_digits",
        ("data.partition=dirichlet", "data.mixes=default", "data.samples_min=30", "data.samples_max=40"),
        variants=(*MAIN, "release"),
    ),
    "digits_7_3_1_1": Setting(
        "paper_digits", ("data.group_sizes=[7, 3, 1, 1]", "data.samples_min=30", "data.samples_max=40"), variants=MAIN
    ),
    "digits_swap_in_round_8": Setting(
        "paper_digits", ("data.over_time=examples.parts.label_swap:LabelSwap",), judged=20, variants=MAIN
    ),
    **{
        f"{name}_steps": Setting("paper_digits", (*overrides, *_STEPS), variants=("new", "oracle"))
        for name, overrides in _STEPPED.items()
    },
    "campus": Setting("campus", (*_LOUD, "training.rounds=15"), judged=10, variants=MAIN),
    "synthetic_100": Setting(
        "campus",
        # 40 broadcasts of 6.72 kbit fit in 10 ms.
        (*_LOUD, "network.users=100", "network.tasks=8", "network.tasks_per_station=4", "radio.downlink_rate_bps=2.7e7",
         "training.rounds=15"),
        judged=20, variants=MAIN,
    ),
    "cifar10": Setting("paper", judged=20, variants=MAIN, cheap=False),
    "femnist": Setting("paper_femnist", judged=10, variants=MAIN, cheap=False),
    "quick_preset": Setting("quick", variants=MAIN),
    "campus_preset": Setting("campus", ("training.rounds=15",), judged=10, variants=MAIN),
    "femnist_preset": Setting("femnist", ("training.rounds=15",), judged=10, variants=MAIN, cheap=False),
    "cifar10_preset": Setting("cifar10", ("training.rounds=15",), judged=10, variants=MAIN, cheap=False),
    **{
        f"groups_{groups}_of_8": _unknown_groups(groups, "network.tasks=8", "network.tasks_per_station=8")
        for groups in range(2, 7)
    },
    **{
        f"groups_{groups}_growing": _unknown_groups(
            groups, "network.tasks=2", "network.tasks_per_station=8", "clustering.max_tasks=8"
        )
        for groups in range(2, 7)
    },
}  # fmt: skip


@dataclass(frozen=True)
class GroupRun(Cell):
    """A run under a policy with one of the variants."""

    data: str = ""
    variant: str = ""
    policy: str = ""
    kind: ClassVar[str] = "groups"

    @property
    def label(self) -> str:
        """Data, variant, policy and seed."""
        return f"{self.data} {self.variant} {self.policy} seed {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Curves by round, and at the end: the cost, the number of groups as estimated, models in use, offers."""
        history = simulate(self.loaded, self.policy, seed=self.seed)
        last = history.records[-1]
        return {
            "clustering_accuracy": history.column("clustering_accuracy").tolist(),
            "accuracy": history.column("accuracy").tolist(),
            "rho_mean": float(last.rho_mean),
            "rho_max": float(last.rho_max),
            "groups": int(self.loaded.groups),
            "groups_estimate": int(last.groups_estimate),
            "groups_confirmed": int(last.groups_confirmed),
            "models_used": int(np.sum(np.array(last.task_users) > 0)),
            "group_models": _group_models(history),
            "offers": int((history.column("offered_task") >= 0).sum()),
            "starting_rounds": int(history.column("starting").sum()),
        }


def _group_models(history: History) -> list[int]:
    """By round: on how many different models the groups are, each on that of most of its users."""
    found = []
    for users in (record.users for record in history.records):
        groups = [users.identity[users.group == group] for group in np.unique(users.group)]
        found.append(len({int(np.bincount(identities).argmax()) for identities in groups}))
    return found


def cell(data: str, variant: str, policy: str, seed: int) -> GroupRun:
    """The cell with these names."""
    setting = DATA[data]
    return GroupRun(setting.preset, (*setting.changes, *VARIANTS[variant]), seed, data, variant, policy)


def cells_of(data: str, seeds: range, variants: Sequence[str] | None, policies: Sequence[str] | None) -> list[GroupRun]:
    """The cells of a data set, seed by seed, so that an early stop leaves complete pairs."""
    setting = DATA[data]
    return [
        cell(data, variant, policy, seed)
        for seed in seeds
        for variant in variants or setting.variants
        for policy in policies or (setting.policies if variant in MAIN else setting.policies[:1])
    ]


def main() -> None:
    """Compute the missing cells, then write the page."""
    parser = options_of(__doc__, Path("results/clustering"))
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--development", action="store_true", help="compute cells of development seeds")
    which.add_argument("--judged", action="store_true", help="compute cells of judged seeds")
    parser.add_argument("--data", nargs="+", choices=DATA, default=None, help="all that are cheap if not given")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, help="those of the data set if not given")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, help="those of the variant if not given")
    parser.add_argument("--seeds", type=int, help="how many; 3 of development, those of the data set of judged ones")
    parser.add_argument("--again", action="store_true", help="compute development cells again, after a change of code")
    parser.add_argument("--page", type=Path, default=Path("docs/clustering.md"))
    options = parser.parse_args()
    if options.again and not options.development:
        parser.error("--again goes with --development only: judged seeds are looked at once")
    first = JUDGED if options.judged else DEVELOPMENT
    cells: list[GroupRun] = []
    for data in options.data or [name for name, setting in DATA.items() if setting.cheap]:
        seeds = options.seeds or (DATA[data].judged if options.judged else 3)
        cells += cells_of(data, range(first, first + seeds), options.variants, options.policies)
    if options.again:
        forget(cells, options.out)
    if options.development or options.judged:
        compute(cells, options.out, options)
    write_page(options.out, options.page)


if __name__ == "__main__":
    main()
