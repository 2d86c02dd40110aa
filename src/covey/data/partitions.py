"""Partitions: who holds what of a data set, and what makes the groups differ.

A partition is a part: a callable `(dataset, scenario, seed) -> UserData`. It may have an attribute `most_groups`, the
number of groups that it can tell apart, which is checked before any data are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from covey.data.dealing import deal_by_class, draw_groups, draw_sizes, gather, largest_samples_max
from covey.data.mixes import class_frequencies, dirichlet_mixes, label_mixes
from covey.data.types import Dataset, Features, Labels, UserData
from covey.data.writers import deal_writers
from covey.errors import DataError
from covey.parts import PARTITIONS
from covey.scenario.schema import Data, Scenario

#: A quarter turn per group leaves four that differ.
MAX_TURNS = 4


class Partition(Protocol):
    """What a partition must offer."""

    def __call__(self, dataset: Dataset, scenario: Scenario, seed: int, /) -> UserData:
        """What every user of the scenario holds of the data set; `DataError` when it cannot be dealt this way."""
        ...


P = TypeVar("P", bound=Partition)


def partition(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """What every user of the scenario holds of the data set, by `data.partition`.

    Raises `DataError` when the data set cannot be dealt this way or has too few samples; the message
    says what is lacking and which value of the scenario would fit.
    """
    name = scenario.data.partition
    check_tasks(scenario.data, scenario.network.tasks)
    dealt = PARTITIONS.build(name, dataset, scenario, seed)
    if not isinstance(dealt, UserData):
        raise PARTITIONS.refused(name, f"returned {type(dealt).__name__}, not a covey.UserData")
    return dealt


def check_tasks(data: Data, tasks: int) -> None:
    """Raises `DataError` when no data set could give this many groups with the scenario's partition."""
    most = getattr(PARTITIONS.get(data.partition), "most_groups", None)
    if most is not None and tasks > most:
        raise DataError(
            f"partition '{data.partition}' tells {most} groups apart, but network.tasks is {tasks}; set it to at most"
            f" {most} or use another data.partition"
        )


def up_to(groups: int) -> Callable[[P], P]:
    """Marks a partition that tells at most this many groups apart."""

    def marked(deal: P) -> P:
        deal.most_groups = groups  # type: ignore[attr-defined]
        return deal

    return marked


def label_mix(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Groups have class proportions of their own: those of `data.mixes`, or chosen from the number of classes."""
    return deal_by_class(dataset, scenario, seed, label_mixes(dataset, scenario.data, scenario.network.tasks))


def dirichlet(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Groups have class proportions drawn from Dirichlet(`data.dirichlet_alpha`)."""
    return deal_by_class(dataset, scenario, seed, dirichlet_mixes(dataset, scenario.data, scenario.network.tasks, seed))


def label_swap(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Groups give the classes different labels."""
    classes, tasks = len(dataset.classes), scenario.network.tasks
    if tasks > classes:
        raise DataError(
            f"partition 'label_swap' shifts labels, which tells {classes} groups apart on '{dataset.name}', but"
            f" network.tasks is {tasks}; set it to at most {classes}"
        )
    users = deal_by_class(dataset, scenario, seed, class_frequencies(dataset, tasks))
    labels = label_permutations(classes, tasks)
    return replace(
        users,
        y=labels[np.repeat(users.groups, np.diff(users.offsets)), users.y],
        test_y=labels[np.repeat(users.groups, np.diff(users.test_offsets)), users.test_y],
    )


@up_to(MAX_TURNS)
def rotation(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Images are turned by 90 degrees x group."""
    _check_square(dataset, scenario)
    return _turned(deal_by_class(dataset, scenario, seed, class_frequencies(dataset, scenario.network.tasks)))


@up_to(MAX_TURNS)
def writer(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Users are made of whole writers; images are turned by 90 degrees x group."""
    data, users = scenario.data, scenario.network.users
    _check_square(dataset, scenario)
    if dataset.writer is None:
        raise DataError(
            f"partition 'writer' needs to know who made each sample, but '{dataset.name}' has no writers; use"
            " 'femnist', a folder with writer.npy, or another data.partition"
        )
    groups = draw_groups(users, scenario.network.tasks, seed)
    rows, offsets, test_rows, test_offsets = deal_writers(
        dataset,
        draw_sizes(data, users, seed),
        data,
        seed,
        lower=lambda fits: largest_samples_max(data, users, seed, fits),
    )
    (x, y), (test_x, test_y) = gather(dataset, rows), gather(dataset, test_rows)
    return _turned(UserData(x, y, offsets, test_x, test_y, test_offsets, groups, dataset.classes))


def label_permutations(classes: int, groups: int) -> Labels:
    """The label that group k gives to class c, (groups, classes).

    Labels are shifted by k x floor(classes / groups), so group 0 keeps them and any two groups disagree on every class.
    """
    shift = np.arange(groups) * (classes // groups)
    return (np.arange(classes)[None, :] + shift[:, None]) % classes


def _check_square(dataset: Dataset, scenario: Scenario) -> None:
    shape = dataset.shape
    if scenario.network.tasks > 1 and (len(shape) != 3 or shape[1] != shape[2]):
        raise DataError(
            f"partition '{scenario.data.partition}' turns images by 90 degrees, but the samples of '{dataset.name}'"
            f" have shape {shape}; it needs square images (channels, side, side): use another data.partition"
        )


def _turned(users: UserData) -> UserData:
    """The same users, whose images have been turned in place."""
    _turn(users.x, np.repeat(users.groups, np.diff(users.offsets)))
    _turn(users.test_x, np.repeat(users.groups, np.diff(users.test_offsets)))
    return users


def _turn(x: Features, groups: Labels) -> None:
    for group in range(1, int(groups.max()) + 1):
        rows = np.flatnonzero(groups == group)
        x[rows] = np.rot90(x[rows], group, axes=(2, 3))
