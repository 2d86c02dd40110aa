"""Partitions: how a data set is split over users, and how the groups differ.

A partition is a part: a callable `(dataset, scenario, seed) -> UserData`. It may have an attribute `most_groups`, the
largest number of groups that it supports, which is checked before any data are read.
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

#: Rotations by multiples of 90 degrees give four distinct groups.
MAX_TURNS = 4


class Partition(Protocol):
    """The interface of a partition."""

    def __call__(self, dataset: Dataset, scenario: Scenario, seed: int, /) -> UserData:
        """The data of every user of the scenario; `DataError` when the data set cannot be split this way."""
        ...


P = TypeVar("P", bound=Partition)


def partition(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """The data of every user of the scenario, by `data.partition`.

    Raises `DataError` when the data set cannot be split this way or has too few samples; the message
    says what is missing and which value of the scenario would fit.
    """
    name = scenario.data.partition
    check_tasks(scenario.data, scenario.network.tasks)
    dealt = PARTITIONS.build(name, dataset, scenario, seed)
    if not isinstance(dealt, UserData):
        raise PARTITIONS.refused(name, f"returned {type(dealt).__name__}, not a covey.UserData")
    return dealt


def check_tasks(data: Data, tasks: int) -> None:
    """Raises `DataError` when the scenario's partition does not support this many groups."""
    most = getattr(PARTITIONS.get(data.partition), "most_groups", None)
    if most is not None and tasks > most:
        raise DataError(
            f"partition '{data.partition}' supports at most {most} groups, but network.tasks is {tasks}; set it to at"
            f" most {most} or use another data.partition"
        )


def up_to(groups: int) -> Callable[[P], P]:
    """Marks a partition that supports at most this many groups."""

    def marked(deal: P) -> P:
        deal.most_groups = groups  # type: ignore[attr-defined]
        return deal

    return marked


def label_mix(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Each group has its own class proportions: those of `data.mixes`, or defaults for the number of classes."""
    return deal_by_class(dataset, scenario, seed, label_mixes(dataset, scenario.data, scenario.network.tasks))


def dirichlet(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Groups have class proportions drawn from Dirichlet(`data.dirichlet_alpha`)."""
    return deal_by_class(dataset, scenario, seed, dirichlet_mixes(dataset, scenario.data, scenario.network.tasks, seed))


def label_swap(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Each group permutes the class labels."""
    classes, tasks = len(dataset.classes), scenario.network.tasks
    if tasks > classes:
        raise DataError(
            f"partition 'label_swap' shifts labels, which gives at most {classes} groups on '{dataset.name}', but"
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
    """Images are rotated by 90 degrees x group."""
    _check_square(dataset, scenario)
    return _turned(deal_by_class(dataset, scenario, seed, class_frequencies(dataset, scenario.network.tasks)))


@up_to(MAX_TURNS)
def writer(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Each user gets whole writers; images are rotated by 90 degrees x group."""
    data, users = scenario.data, scenario.network.users
    _check_square(dataset, scenario)
    if dataset.writer is None:
        raise DataError(
            f"partition 'writer' needs the writer of each sample, but '{dataset.name}' has no writers; use"
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
    """The label that group k assigns to class c, (groups, classes).

    Labels are shifted by k x floor(classes / groups), so group 0 keeps them and any two groups disagree on every class.
    """
    shift = np.arange(groups) * (classes // groups)
    return (np.arange(classes)[None, :] + shift[:, None]) % classes


def _check_square(dataset: Dataset, scenario: Scenario) -> None:
    shape = dataset.shape
    if scenario.network.tasks > 1 and (len(shape) != 3 or shape[1] != shape[2]):
        raise DataError(
            f"partition '{scenario.data.partition}' rotates images by 90 degrees, but the samples of '{dataset.name}'"
            f" have shape {shape}; it needs square images (channels, side, side): use another data.partition"
        )


def _turned(users: UserData) -> UserData:
    """The same users, with their images rotated in place."""
    _turn(users.x, np.repeat(users.groups, np.diff(users.offsets)))
    _turn(users.test_x, np.repeat(users.groups, np.diff(users.test_offsets)))
    return users


def _turn(x: Features, groups: Labels) -> None:
    for group in range(1, int(groups.max()) + 1):
        rows = np.flatnonzero(groups == group)
        x[rows] = np.rot90(x[rows], group, axes=(2, 3))
