"""Partitions: who holds what of a data set, and what makes the groups differ.

A partition is a part: a callable `(dataset, scenario, seed) -> UserData` that deals to `scenario.groups` groups. It may
have an attribute `most_groups`, the number of groups that it can tell apart, which is checked before any data are read,
and `turns = True` if it turns images by `data.rotations`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from covey.data.dealing import deal_by_class, draw_sizes, gather, groups_of_users, largest_samples_max
from covey.data.mixes import class_frequencies, dirichlet_mixes, label_mixes
from covey.data.turns import QUARTER_TURNS, turn_images, turns_of_groups
from covey.data.types import Dataset, Labels, UserData
from covey.data.writers import deal_writers
from covey.errors import DataError
from covey.parts import PARTITIONS
from covey.scenario.schema import Data, Scenario


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
    check_groups(scenario.data, scenario.groups)
    dealt = PARTITIONS.build(name, dataset, scenario, seed)
    if not isinstance(dealt, UserData):
        raise PARTITIONS.refused(name, f"returned {type(dealt).__name__}, not a covey.UserData")
    return dealt


def check_groups(data: Data, groups: int) -> None:
    """Raises `DataError` when no data set could give this many groups with the scenario's partition."""
    part = PARTITIONS.get(data.partition)
    most, turns = getattr(part, "most_groups", None), getattr(part, "turns", False)
    if data.rotations is not None and not turns:
        raise DataError(
            f"data.rotations is given, but partition '{data.partition}' does not turn images; set data.partition ="
            " 'rotation', or leave data.rotations out"
        )
    if most is not None and groups > most and data.rotations is None:
        angles = ", give an angle for each in data.rotations" if turns else ""
        raise DataError(
            f"partition '{data.partition}' tells {most} groups apart, but there are {groups}; set data.groups to at"
            f" most {most}{angles} or use another data.partition"
        )


def up_to(groups: int, *, turns: bool = False) -> Callable[[P], P]:
    """Marks a partition that tells at most this many groups apart, or any number by `data.rotations` if it `turns`."""

    def marked(deal: P) -> P:
        deal.most_groups = groups  # type: ignore[attr-defined]
        deal.turns = turns  # type: ignore[attr-defined]
        return deal

    return marked


def label_mix(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Groups have class proportions of their own: those of `data.mixes`, or chosen from the number of classes."""
    return deal_by_class(dataset, scenario, seed, label_mixes(dataset, scenario.data, scenario.groups))


def dirichlet(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Groups have class proportions drawn from Dirichlet(`data.dirichlet_alpha`)."""
    return deal_by_class(dataset, scenario, seed, dirichlet_mixes(dataset, scenario.data, scenario.groups, seed))


def label_swap(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Groups give the classes different labels."""
    classes, groups = len(dataset.classes), scenario.groups
    if groups > classes:
        raise DataError(
            f"partition 'label_swap' shifts labels, which tells {classes} groups apart on '{dataset.name}', but there"
            f" are {groups}; set data.groups to at most {classes}"
        )
    users = deal_by_class(dataset, scenario, seed, class_frequencies(dataset, groups))
    labels = label_permutations(classes, groups)
    return replace(
        users,
        y=labels[np.repeat(users.groups, np.diff(users.offsets)), users.y],
        test_y=labels[np.repeat(users.groups, np.diff(users.test_offsets)), users.test_y],
    )


@up_to(QUARTER_TURNS, turns=True)
def rotation(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Images are turned by 90 degrees x group, or by the group's angle in `data.rotations`."""
    _check_square(dataset, scenario)
    users = deal_by_class(dataset, scenario, seed, class_frequencies(dataset, scenario.groups))
    return _turned(users, dataset, scenario)


@up_to(QUARTER_TURNS, turns=True)
def writer(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Users are made of whole writers; images are turned as in `rotation`."""
    data, users = scenario.data, scenario.network.users
    _check_square(dataset, scenario)
    if dataset.writer is None:
        raise DataError(
            f"partition 'writer' needs to know who made each sample, but '{dataset.name}' has no writers; use"
            " 'femnist', a folder with writer.npy, or another data.partition"
        )
    groups = groups_of_users(scenario, seed)
    rows, offsets, test_rows, test_offsets = deal_writers(
        dataset,
        draw_sizes(data, users, seed),
        data,
        seed,
        lower=lambda fits: largest_samples_max(data, users, seed, fits),
    )
    (x, y), (test_x, test_y) = gather(dataset, rows), gather(dataset, test_rows)
    dealt = UserData(x, y, offsets, test_x, test_y, test_offsets, groups, dataset.classes)
    return _turned(dealt, dataset, scenario)


def label_permutations(classes: int, groups: int) -> Labels:
    """The label that group k gives to class c, (groups, classes).

    Labels are shifted by k x floor(classes / groups), so group 0 keeps them and any two groups disagree on every class.
    """
    shift = np.arange(groups) * (classes // groups)
    return (np.arange(classes)[None, :] + shift[:, None]) % classes


def _check_square(dataset: Dataset, scenario: Scenario) -> None:
    shape, turns = dataset.shape, turns_of_groups(scenario)
    if any(angle % 360 for angle in turns) and (len(shape) != 3 or shape[1] != shape[2]):
        raise DataError(
            f"partition '{scenario.data.partition}' turns images, but the samples of '{dataset.name}' have shape"
            f" {shape}; it needs square images (channels, side, side): use another data.partition"
        )


def _turned(users: UserData, dataset: Dataset, scenario: Scenario) -> UserData:
    """The same users, whose images have been turned in place."""
    turns = turns_of_groups(scenario)
    if not any(angle % 360 for angle in turns):
        return users
    # What a model sees of a black pixel.
    empty = dataset.normalise(np.zeros((1, *dataset.shape), dataset.x.dtype))[0, :, 0, 0]
    turn_images(users.x, np.repeat(users.groups, np.diff(users.offsets)), turns, empty)
    turn_images(users.test_x, np.repeat(users.groups, np.diff(users.test_offsets)), turns, empty)
    return users
