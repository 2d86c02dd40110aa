"""Dealing a data set to users: who holds which samples.

Training samples are drawn without replacement over all users. A user's test samples come from the
held-out half with the user's own mix; two users may share test samples. Everything follows from the
scenario and the seed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from covey.data.mixes import Shares, counts, group_shares, user_shares
from covey.data.sources.base import Stream
from covey.data.types import Dataset, Features, Labels, UserData
from covey.data.writers import deal_writers
from covey.errors import DataError
from covey.scenario.schema import Data, Scenario
from covey.seeding import generator

#: A quarter turn per group leaves four that differ.
MAX_TURNS = 4

#: Draws of the users' proportions before a data set is called too small: one unlucky user is no shortage.
ATTEMPTS = 20


def partition(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """What every user of the scenario holds of the data set, by `data.partition`.

    Raises `DataError` when the data set cannot be dealt this way or has too few samples; the message
    says what is lacking and which value of the scenario would fit.
    """
    data, users, tasks = scenario.data, scenario.network.users, scenario.network.tasks
    check_tasks(data, tasks)
    _check_dataset(dataset, data, tasks)
    groups = draw_groups(users, tasks, seed)
    sizes = draw_sizes(data, users, seed)
    if data.partition == "writer":
        rows, offsets, test_rows, test_offsets = deal_writers(
            dataset, sizes, data, seed, lower=lambda fits: _largest_samples_max(data, users, seed, fits)
        )
        (x, y), (test_x, test_y) = _gather(dataset, rows), _gather(dataset, test_rows)
    else:
        need, test_need = _counts_that_fit(dataset, data, groups, sizes, group_shares(dataset, data, tasks, seed), seed)
        offsets, test_offsets = _offsets(sizes), _offsets(test_need.sum(axis=1))
        if dataset.draw is not None:
            x, y = _draw_fresh(dataset, dataset.draw, need, seed, half=0)
            test_x, test_y = _draw_fresh(dataset, dataset.draw, test_need, seed, half=1)
        else:
            rows = _deal(np.flatnonzero(~dataset.test), dataset.y, need, seed)
            test_rows = _deal_test(np.flatnonzero(dataset.test), dataset.y, test_need, seed)
            (x, y), (test_x, test_y) = _gather(dataset, rows), _gather(dataset, test_rows)
    if data.partition == "label_swap":
        labels = label_permutations(len(dataset.classes), tasks)
        y = labels[np.repeat(groups, np.diff(offsets)), y]
        test_y = labels[np.repeat(groups, np.diff(test_offsets)), test_y]
    if data.partition in ("rotation", "writer"):
        _turn(x, np.repeat(groups, np.diff(offsets)))
        _turn(test_x, np.repeat(groups, np.diff(test_offsets)))
    return UserData(x, y, offsets, test_x, test_y, test_offsets, groups, dataset.classes)


def draw_sizes(data: Data, users: int, seed: int) -> Labels:
    """Training samples of each user, X_i: (U,), uniform in samples_min..samples_max."""
    return generator(seed, "samples").integers(data.samples_min, data.samples_max + 1, size=users)


def draw_groups(users: int, tasks: int, seed: int) -> Labels:
    """The true group of each user: (U,); sizes of groups differ by at most one, and none is empty."""
    return generator(seed, "groups").permutation(np.arange(users, dtype=np.int64) % tasks)


def label_permutations(classes: int, groups: int) -> Labels:
    """The label that group k gives to class c, (groups, classes).

    Labels are shifted by k x floor(classes / groups), so group 0 keeps them and any two groups disagree on every class.
    """
    shift = np.arange(groups) * (classes // groups)
    return (np.arange(classes)[None, :] + shift[:, None]) % classes


def check_tasks(data: Data, tasks: int) -> None:
    """Raises `DataError` when no data set could give this many groups with the scenario's partition."""
    if data.partition in ("rotation", "writer") and tasks > MAX_TURNS:
        raise DataError(
            f"partition '{data.partition}' turns images by 90 degrees x group, which tells {MAX_TURNS} groups apart,"
            f" but network.tasks is {tasks}; set it to at most {MAX_TURNS} or use another data.partition"
        )


def _check_dataset(dataset: Dataset, data: Data, tasks: int) -> None:
    if data.partition in ("rotation", "writer") and tasks > 1:
        shape = dataset.shape
        if len(shape) != 3 or shape[1] != shape[2]:
            raise DataError(
                f"partition '{data.partition}' turns images by 90 degrees, but the samples of '{dataset.name}' have"
                f" shape {shape}; it needs square images (channels, side, side): use another data.partition"
            )
    if data.partition == "writer" and dataset.writer is None:
        raise DataError(
            f"partition 'writer' needs to know who made each sample, but '{dataset.name}' has no writers; use"
            " 'femnist', a folder with writer.npy, or another data.partition"
        )
    if data.partition == "label_swap" and tasks > len(dataset.classes):
        raise DataError(
            f"partition 'label_swap' shifts labels, which tells {len(dataset.classes)} groups apart on"
            f" '{dataset.name}', but network.tasks is {tasks}; set it to at most {len(dataset.classes)}"
        )


def _offsets(sizes: Labels) -> Labels:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _gather(dataset: Dataset, rows: Labels) -> tuple[Features, Labels]:
    return dataset.normalise(dataset.x[rows]), dataset.y[rows]


def _deal(pool: Labels, y: Labels, need: Labels, seed: int) -> Labels:
    """Rows of the pool for user 0, then user 1, ...: `need` of each class, no row twice."""
    rng = generator(seed, "partition", round=Stream.DEAL)
    rows, owners = [], []
    for c in range(need.shape[1]):
        members = rng.permutation(pool[y[pool] == c])
        rows.append(members[: need[:, c].sum()])
        owners.append(np.repeat(np.arange(len(need)), need[:, c]))
    return _in_order(np.concatenate(rows), np.concatenate(owners), rng)


def _deal_test(pool: Labels, y: Labels, need: Labels, seed: int) -> Labels:
    """Rows of the pool for each user: `need` of each class, no row twice within a user."""
    members = [pool[y[pool] == c] for c in range(need.shape[1])]
    rows = []
    for user, row in enumerate(need):
        rng = generator(seed, "partition", user=user, round=Stream.TEST)
        rows += [rng.choice(members[c], row[c], replace=False) for c in np.flatnonzero(row)]
    return np.concatenate(rows)


def _draw_fresh(
    dataset: Dataset,
    draw: Callable[[Labels, np.random.Generator], Features],
    need: Labels,
    seed: int,
    *,
    half: int,
) -> tuple[Features, Labels]:
    users, classes = need.shape
    y = np.repeat(np.tile(np.arange(classes), users), need.ravel())
    owners = np.repeat(np.arange(users), need.sum(axis=1))
    y = _in_order(y, owners, generator(seed, "partition", user=half, round=Stream.ORDER))
    # Rounds 0 and 1 of the purpose belong to the data set itself.
    return dataset.normalise(draw(y, generator(seed, "synthetic", user=half, round=2))), y


def _in_order(values: Labels, owners: Labels, rng: np.random.Generator) -> Labels:
    """Values sorted by owner, in random order within an owner."""
    return values[np.lexsort((rng.random(len(values)), owners))]


def _turn(x: Features, groups: Labels) -> None:
    for group in range(1, int(groups.max()) + 1):
        rows = np.flatnonzero(groups == group)
        x[rows] = np.rot90(x[rows], group, axes=(2, 3))


def _counts_that_fit(
    dataset: Dataset, data: Data, groups: Labels, sizes: Labels, mixes: Shares, seed: int
) -> tuple[Labels, Labels]:
    """Training and test samples of each user and class, (U, classes) both, that the data set can give."""
    train_pool = np.bincount(dataset.y[~dataset.test], minlength=len(dataset.classes))
    test_pool = np.bincount(dataset.y[dataset.test], minlength=len(dataset.classes))
    test_sizes = np.full(len(groups), data.test_samples)
    for attempt in range(ATTEMPTS):
        shares = user_shares(mixes[groups], data.concentration, seed, attempt)
        need, test_need = counts(shares, sizes), counts(shares, test_sizes)
        if dataset.draw is not None or ((need.sum(axis=0) <= train_pool).all() and (test_need <= test_pool).all()):
            return need, test_need
    # The advice is worked out for the first draw, which the next call tries first.
    shares = user_shares(mixes[groups], data.concentration, seed)
    need, test_need = counts(shares, sizes), counts(shares, test_sizes)
    if (need.sum(axis=0) > train_pool).any():
        raise _too_few(dataset, data, shares, need, train_pool, groups, seed)
    raise _too_few_for_test(dataset, data, shares, test_need, test_pool, groups)


def _too_few(
    dataset: Dataset, data: Data, shares: Shares, need: Labels, have: Labels, groups: Labels, seed: int
) -> DataError:
    lack = need.sum(axis=0) - have
    c = int(lack.argmax())
    by_group = np.bincount(groups, weights=need[:, c]).astype(int)
    asking = ", ".join(f"group {k} {n:,}" for k, n in enumerate(by_group) if n)

    def fits(sizes: Labels) -> bool:
        return bool((counts(shares, sizes).sum(axis=0) <= have).all())

    advice = _largest_samples_max(data, len(groups), seed, fits)
    return DataError(
        f"'{dataset.name}' has {have[c]:,} training samples of class {c} ({dataset.classes[c]}), but the users need"
        f" {need[:, c].sum():,} ({asking}), {lack[c]:,} more; {advice}"
    )


def _too_few_for_test(
    dataset: Dataset, data: Data, shares: Shares, need: Labels, have: Labels, groups: Labels
) -> DataError:
    lack = need - have
    user, c = (int(i) for i in np.unravel_index(lack.argmax(), lack.shape))
    most = data.test_samples - 1
    while most and (counts(shares, np.full(len(groups), most)) > have).any():
        most -= 1
    advice = f"lower data.test_samples to at most {most}" if most else "use another data.partition or data.mixes"
    return DataError(
        f"'{dataset.name}' has {have[c]:,} test samples of class {c} ({dataset.classes[c]}), but user {user} of group"
        f" {groups[user]} needs {need[user, c]:,}, {lack[user, c]:,} more; {advice}"
    )


def _largest_samples_max(data: Data, users: int, seed: int, fits: Callable[[Labels], bool]) -> str:
    """What to change so that the users' sizes fit; the value named has been tried."""
    most = data.samples_max
    while most:
        most = min(most - 1, int(most * 0.98))
        sizes = {"samples_min": min(data.samples_min, most), "samples_max": most}
        if most and fits(draw_sizes(data.model_copy(update=sizes), users, seed)):
            key = "data.samples_max" if most >= data.samples_min else "data.samples_min and data.samples_max"
            return f"lower {key} to at most {most}, or network.users"
    return "lower network.users"
