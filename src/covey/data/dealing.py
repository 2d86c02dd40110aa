"""Dealing samples to users by class: how many samples of each class a user gets, and which.

Training samples are drawn without replacement over all users. A user's test samples come from the test split with
the user's own mix; two users may share test samples. Everything is a function of the scenario and the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from covey.data.mixes import Shares, counts, user_shares
from covey.data.sources.base import Stream
from covey.data.types import Dataset, Features, Labels, UserData
from covey.errors import DataError
from covey.scenario.schema import Data, Scenario
from covey.seeding import generator

#: Attempts at drawing the users' proportions before a data set counts as too small: one draw may be unlucky.
ATTEMPTS = 20


def deal_by_class(dataset: Dataset, scenario: Scenario, seed: int, mixes: Shares) -> UserData:
    """Users whose classes follow their group's mix; mixes: (groups, classes), rows sum to 1."""
    data, users = scenario.data, scenario.network.users
    groups = groups_of_users(scenario, seed)
    sizes = draw_sizes(data, users, seed)
    need, test_need = _counts_that_fit(dataset, data, groups, sizes, mixes, seed)
    if dataset.draw is not None:
        x, y = _draw_fresh(dataset, dataset.draw, need, seed, half=0)
        test_x, test_y = _draw_fresh(dataset, dataset.draw, test_need, seed, half=1)
    else:
        x, y = gather(dataset, _deal(np.flatnonzero(~dataset.test), dataset.y, need, seed))
        test_x, test_y = gather(dataset, _deal_test(np.flatnonzero(dataset.test), dataset.y, test_need, seed))
    offsets, test_offsets = _offsets(sizes), _offsets(test_need.sum(axis=1))
    return UserData(x, y, offsets, test_x, test_y, test_offsets, groups, dataset.classes)


def draw_sizes(data: Data, users: int, seed: int) -> Labels:
    """Training samples of each user, X_i: (U,), uniform in samples_min..samples_max."""
    return generator(seed, "samples").integers(data.samples_min, data.samples_max + 1, size=users)


def groups_of_users(scenario: Scenario, seed: int) -> Labels:
    """The true group of each user of a scenario: (U,), of `data.group_sizes` users each where that is given."""
    return draw_groups(scenario.network.users, scenario.groups, seed, scenario.data.group_sizes)


def draw_groups(users: int, groups: int, seed: int, sizes: Sequence[int] | None = None) -> Labels:
    """The group of each user: (U,), in random order, none empty; group sizes differ by at most one unless given."""
    members = np.arange(users, dtype=np.int64) % groups if sizes is None else np.repeat(np.arange(groups), sizes)
    return generator(seed, "groups").permutation(members)


def _offsets(sizes: Labels) -> Labels:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def gather(dataset: Dataset, rows: Labels) -> tuple[Features, Labels]:
    """Normalised features and labels of these rows of the data set."""
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


def _counts_that_fit(
    dataset: Dataset, data: Data, groups: Labels, sizes: Labels, mixes: Shares, seed: int
) -> tuple[Labels, Labels]:
    """Training and test samples of each user and class, (U, classes) both, that the data set can supply."""
    train_pool = np.bincount(dataset.y[~dataset.test], minlength=len(dataset.classes))
    test_pool = np.bincount(dataset.y[dataset.test], minlength=len(dataset.classes))
    if dataset.draw is None and len(groups) > train_pool.sum():
        raise DataError(
            f"'{dataset.name}' has {train_pool.sum():,} training samples in all, fewer than the {len(groups):,} users;"
            " take a larger data set, or lower network.users"
        )
    test_sizes = np.full(len(groups), data.test_samples)
    for attempt in range(ATTEMPTS):
        shares = user_shares(mixes[groups], data.concentration, seed, attempt)
        need, test_need = counts(shares, sizes), counts(shares, test_sizes)
        if dataset.draw is not None or ((need.sum(axis=0) <= train_pool).all() and (test_need <= test_pool).all()):
            return need, test_need
    # The advice is computed for the first draw, which the next call tries first.
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

    advice = largest_samples_max(data, len(groups), seed, fits)
    return DataError(
        f"'{dataset.name}' has {have[c]:,} training samples of class {c} ({dataset.classes[c]}), but the users need"
        f" {need[:, c].sum():,} ({asking}), {lack[c]:,} more; {advice}"
    )


def _too_few_for_test(
    dataset: Dataset, data: Data, shares: Shares, need: Labels, have: Labels, groups: Labels
) -> DataError:
    lack = need - have
    user, c = (int(i) for i in np.unravel_index(lack.argmax(), lack.shape))
    most = min(data.test_samples - 1, int(have.sum()))
    while most and (counts(shares, np.full(len(groups), most)) > have).any():
        most -= 1
    advice = f"lower data.test_samples to at most {most}" if most else "use another data.partition or data.mixes"
    return DataError(
        f"'{dataset.name}' has {have[c]:,} test samples of class {c} ({dataset.classes[c]}), but user {user} of group"
        f" {groups[user]} needs {need[user, c]:,}, {lack[user, c]:,} more; {advice}"
    )


def largest_samples_max(data: Data, users: int, seed: int, fits: Callable[[Labels], bool]) -> str:
    """Advice on what to change so that the users' sizes fit; the suggested value has been tried."""
    most = data.samples_max
    while most:
        most = min(most - 1, int(most * 0.98))
        sizes = {"samples_min": min(data.samples_min, most), "samples_max": most}
        if most and fits(draw_sizes(data.model_copy(update=sizes), users, seed)):
            key = "data.samples_max" if most >= data.samples_min else "data.samples_min and data.samples_max"
            return f"lower {key} to at most {most}, or network.users"
    return "lower network.users"
