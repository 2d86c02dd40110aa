"""The finished runs of the study of groups, read from its store, and the bars that they are held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covey.evaluation import Estimate, mean_interval
from covey.figures.cells import cells_in
from covey.jobs import Record

#: Settings were chosen on seeds from here on,
DEVELOPMENT = 1000
#: and verdicts are made from seeds from here on.
JUDGED = 9000
Floats = NDArray[np.float64]
TITLES = {
    "digits": "digits, label mixes (`paper_digits`)",
    "digits_noise_4": "digits, 4 times the noise variance",
    "digits_noise_16": "digits, 16 times the noise variance",
    "digits_rotation": "digits, rotated",
    "digits_label_swap": "digits, labels swapped",
    "digits_dirichlet": "digits, Dirichlet",
    "digits_7_3_1_1": "digits, groups of 7, 3, 1, 1",
    "digits_swap_in_round_8": "digits, labels change in round 8",
    "digits_steps": "digits, label mixes, five local steps",
    "digits_noise_4_steps": "digits, 4 times the noise variance, five local steps",
    "digits_noise_16_steps": "digits, 16 times the noise variance, five local steps",
    "digits_rotation_steps": "digits, rotated, five local steps",
    "digits_label_swap_steps": "digits, labels swapped, five local steps",
    "digits_dirichlet_steps": "digits, Dirichlet, five local steps",
    "digits_7_3_1_1_steps": "digits, groups of 7, 3, 1, 1, five local steps",
    "campus": "200 users (`campus` with less noise)",
    "synthetic_100": "synthetic, 100 users, 8 groups",
    "cifar10": "CIFAR-10 (`paper`)",
    "femnist": "FEMNIST (`paper_femnist`)",
    "quick_preset": "digits at epsilon 4 (`quick`)",
    "campus_preset": "200 users at epsilon 2 (`campus`)",
    "femnist_preset": "FEMNIST, 100 users at epsilon 8 (`femnist`)",
    "cifar10_preset": "CIFAR-10, 100 users at epsilon 8 (`cifar10`)",
}


class Bar(NamedTuple):
    """What is asked of a data set: mean clustering accuracy and share of perfect runs in the last round."""

    accuracy: float
    perfect: float | None


BARS = {
    **dict.fromkeys(("digits", "digits_noise_4", "campus", "synthetic_100", "cifar10", "femnist"), Bar(0.99, 0.95)),
    **dict.fromkeys(("quick_preset", "campus_preset", "femnist_preset", "cifar10_preset"), Bar(0.99, 0.95)),
    **dict.fromkeys(("digits_steps", "digits_noise_4_steps"), Bar(0.99, 0.95)),
    **dict.fromkeys(("digits_noise_16", "digits_noise_16_steps"), Bar(0.97, None)),
    **dict.fromkeys(("digits_rotation", "digits_label_swap", "digits_dirichlet"), Bar(0.97, 0.90)),
    **dict.fromkeys(("digits_rotation_steps", "digits_label_swap_steps", "digits_dirichlet_steps"), Bar(0.97, 0.90)),
}
#: How far test accuracy may be below that of true groups.
WITHIN = 0.01
#: Share of runs in which the number of groups has to be found.
NUMBER_FOUND = 0.90


class Runs:
    """Runs of one data set, variant and policy, in the order of their seeds; values: (n, T) or (n,) by name."""

    def __init__(self, records: list[Record], judged_from: int = JUDGED) -> None:
        records = sorted(records, key=lambda record: int(record.job["seed"]))
        self.seeds = [int(record.job["seed"]) for record in records]
        self._values = [record.values for record in records]
        self.judged = bool(self.seeds) and self.seeds[0] >= judged_from

    def __len__(self) -> int:
        return len(self.seeds)

    def values(self, name: str) -> NDArray[Any]:
        """(n, T) curves or (n,) numbers."""
        return np.array([values[name] for values in self._values])

    def last(self, name: str) -> Floats:
        """(n,) the last value of every run."""
        values = self.values(name).astype(np.float64)
        return values[:, -1] if values.ndim == 2 else values

    def mean(self, name: str) -> Estimate:
        """Mean of the last values."""
        return mean_interval(self.last(name))

    @property
    def perfect(self) -> NDArray[np.bool_]:
        """(n, T) whether all users are right."""
        return np.asarray(self.values("clustering_accuracy") == 1.0)

    def minus(self, other: Runs, name: str) -> Estimate | None:
        """Mean paired difference of the last values over the seeds that both have; None if there is none."""
        ours, theirs = (
            dict(zip(self.seeds, self.last(name), strict=True)),
            dict(zip(other.seeds, other.last(name), strict=True)),
        )
        common = sorted(set(ours) & set(theirs))
        return mean_interval(np.array([ours[seed] - theirs[seed] for seed in common])) if common else None


#: By data set, variant and policy.
Found = dict[tuple[str, str, str], Runs]


def records_of(out: Path) -> list[Record]:
    """All finished cells, whatever versions computed them: the page says which."""
    return cells_in(out, any_version=True).records("groups")


def read_runs(out: Path) -> Found:
    """The runs of judged seeds of every data set, or those of development seeds where there are no others yet."""
    records = records_of(out)
    judged = {record.job["data"] for record in records if record.job["seed"] >= JUDGED}
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        job = record.job
        if (job["seed"] >= JUDGED) == (job["data"] in judged):
            found.setdefault((job["data"], job["variant"], job["policy"]), []).append(record)
    return {key: Runs(mine) for key, mine in found.items()}


def share_interval(hits: NDArray[np.bool_]) -> Estimate:
    """A share with its 95 % interval by Clopper and Pearson."""
    from scipy import stats

    n, k = len(hits), int(np.sum(hits))
    low = float(stats.beta.ppf(0.025, k, n - k + 1)) if k else 0.0
    high = float(stats.beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
    return Estimate(k / n, low, high, n)
