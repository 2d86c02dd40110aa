from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from covey.environment.surrogate import Constants, announced, composition, learn, own_losses, recursion

TASKS, USERS, NETWORKS = 3, 10, 4


@pytest.fixture(scope="module")
def constants() -> Constants:
    """Constants none of which is 0, so that every term of the recursion counts."""
    return Constants(
        start=2.5,
        start_std=0.2,
        knots=(0.3, 1.5, 2.8),
        own=(-0.05, -0.1, -0.3),
        other=(0.2, 0.04),
        mixed=(-0.3, 0.05),
        missing=0.5,
        noise=30.0,
        floor=0.1,
        ceiling=3.2,
        offset_std=0.1,
        judgement_std=0.05,
    )


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    """Four networks; in the third nobody is served, in the last group 2 has no users."""
    rng = np.random.default_rng(5)
    groups = rng.integers(0, TASKS, (NETWORKS, USERS))
    groups[:, :TASKS] = np.arange(TASKS)
    groups[3] = np.minimum(groups[3], 1)
    served = rng.random((NETWORKS, USERS)) < 0.6
    served[2] = False
    return {
        "groups": groups,
        "identities": rng.integers(0, TASKS, (NETWORKS, USERS)),
        "samples": rng.integers(60, 91, (NETWORKS, USERS)),
        "served": served,
        "noise_std": np.where(served, rng.uniform(1.0, 3.0, (NETWORKS, USERS)), 0.0),
    }


def by_loops(network: int, group: int, task: int, arrays: dict[str, np.ndarray]) -> tuple[float, float, float, bool]:
    """Wrong share, missing share, noise and whether the model was trained, user by user."""
    own = total = held = noise = 0.0
    for user in range(USERS):
        belongs = arrays["groups"][network, user] == group
        samples = float(arrays["samples"][network, user])
        held += samples if belongs else 0.0
        if arrays["served"][network, user] and arrays["identities"][network, user] == task:
            total += samples
            own += samples if belongs else 0.0
            noise += float(arrays["noise_std"][network, user]) ** 2
    if total == 0.0:
        return 1.0, 1.0, 0.0, False
    return 1.0 - own / total, 1.0 - (own / held if held else 0.0), noise / total**2, True


def between(loss: float, knots: tuple[float, ...], values: tuple[float, ...]) -> float:
    """The straight line between the knots around `loss`; beyond them the last value."""
    if loss <= knots[0]:
        return values[0]
    for (left, low), (right, high) in pairwise(zip(knots, values, strict=True)):
        if loss <= right:
            return low + (high - low) * (loss - left) / (right - left)
    return values[-1]


def test_composition_equals_a_loop_over_users(arrays: dict[str, np.ndarray]) -> None:
    found = composition(**arrays, count=TASKS, tasks=TASKS)
    for index in np.ndindex(NETWORKS, TASKS, TASKS):
        expected = by_loops(*index, arrays)
        assert [float(part[index]) for part in found] == pytest.approx([*map(float, expected)], rel=1e-12), index


@pytest.mark.parametrize(("count", "tasks"), [(TASKS, TASKS + 2), (TASKS + 2, TASKS)])
def test_groups_without_users_and_tasks_without_training_change_nothing_else(
    count: int, tasks: int, arrays: dict[str, np.ndarray], constants: Constants
) -> None:
    square, found = composition(**arrays, count=TASKS, tasks=TASKS), composition(**arrays, count=count, tasks=tasks)
    for small, large in zip(square, found, strict=True):
        assert large.shape == (NETWORKS, count, tasks)
        np.testing.assert_array_equal(large[:, :TASKS, :TASKS], small)
    before = np.random.default_rng(6).uniform(0.2, 3.0, (NETWORKS, count, tasks))
    after = learn(constants, before, **arrays)
    np.testing.assert_array_equal(after[:, :, TASKS:], before[:, :, TASKS:])
    np.testing.assert_array_equal(
        after[:, :TASKS, :TASKS], learn(constants, before[:, :TASKS, :TASKS].copy(), **arrays)
    )


def test_learning_equals_a_loop_over_groups_and_tasks(arrays: dict[str, np.ndarray], constants: Constants) -> None:
    before = np.random.default_rng(6).uniform(0.2, 3.0, (NETWORKS, TASKS, TASKS))
    after = learn(constants, before, **arrays)
    for index in np.ndindex(before.shape):
        wrong, missing, noise, trained = by_loops(*index, arrays)
        loss = before[index]
        if trained:
            loss += (
                (1 - wrong) * between(loss, constants.knots, constants.own)
                + wrong * (constants.other[0] + constants.other[1] * loss)
                + wrong * (1 - wrong) * (constants.mixed[0] + constants.mixed[1] * loss)
                + constants.missing * missing**2
                + constants.noise * noise
            )
            loss = min(max(loss, constants.floor), constants.ceiling)
        assert after[index] == pytest.approx(loss, rel=1e-12), index


def test_a_task_that_nobody_serves_keeps_its_losses(arrays: dict[str, np.ndarray], constants: Constants) -> None:
    before = np.random.default_rng(7).uniform(0.2, 3.0, (NETWORKS, TASKS, TASKS))
    after = learn(constants, before, **arrays)
    np.testing.assert_array_equal(after[2], before[2])
    for network in range(NETWORKS):
        trained = set(arrays["identities"][network, arrays["served"][network]].tolist())
        for task in set(range(TASKS)) - trained:
            np.testing.assert_array_equal(after[network, :, task], before[network, :, task])
        for task in trained:
            assert np.all(after[network, :, task] != before[network, :, task])


def test_wrong_and_missing_users_and_noise_never_help(constants: Constants) -> None:
    strict = replace(constants, mixed=(0.0, 0.0), ceiling=100.0)
    loss, none, some = np.full(5, 2.0), np.zeros(5), np.linspace(0.0, 1.0, 5)
    for shares in ((some, none, none), (none, some, none), (none, none, some)):
        assert np.all(np.diff(recursion(strict, loss, *shares)) > 0)


def test_strangers_count_in_their_share_of_the_samples(constants: Constants) -> None:
    plain = replace(constants, mixed=(0.0, 0.0))
    loss, none = np.full(3, 2.0), np.zeros(3)
    alone, half, others = recursion(plain, loss, np.array([0.0, 0.5, 1.0]), none, none)
    assert half == pytest.approx((alone + others) / 2)


def test_losses_stay_between_floor_and_ceiling(constants: Constants) -> None:
    steep = replace(constants, own=(-9.0, -9.0, -9.0), other=(1e6, 0.0))
    ones = np.ones(1)
    assert recursion(steep, ones, 0 * ones, 0 * ones, 0 * ones) == [steep.floor]
    assert recursion(steep, ones, ones, 0 * ones, 0 * ones) == [steep.ceiling]


def test_constants_read_back_from_json(constants: Constants) -> None:
    assert Constants.from_dict(json.loads(json.dumps(constants.to_dict()))) == constants


def test_users_announce_the_task_that_fits_them_best() -> None:
    losses = np.array([[[0.5, 0.9], [0.9, 0.5]]])
    groups = np.array([[0, 1, 1]])
    offsets = np.zeros((1, 3, 2))
    offsets[0, 2] = [-0.2, 0.3]
    np.testing.assert_array_equal(announced(losses, groups, offsets), [[0, 1, 0]])


def test_users_announce_the_least_and_have_the_loss_of_their_task() -> None:
    rng = np.random.default_rng(3)
    losses, offsets = rng.uniform(0.2, 3.0, (NETWORKS, TASKS, TASKS)), rng.normal(0.0, 0.5, (NETWORKS, USERS, TASKS))
    groups = rng.integers(0, TASKS, (NETWORKS, USERS))
    losses[0], offsets[0] = 1.0, 0.0  # all equal: the first task
    own = np.take_along_axis(losses, groups[:, :, None], axis=1)
    tasks = announced(losses, groups, offsets)
    np.testing.assert_array_equal(tasks, (own + offsets).argmin(axis=2))
    assert not tasks[0].any()
    np.testing.assert_array_equal(
        own_losses(losses, groups, tasks), np.take_along_axis(own, tasks[:, :, None], axis=2)[:, :, 0]
    )


def test_composition_equals_matrix_products_bit_by_bit(arrays: dict[str, np.ndarray]) -> None:
    every = np.arange(TASKS)[None, :, None]
    member = (arrays["groups"][:, None, :] == every).astype(float)
    joined = ((arrays["identities"][:, None, :] == every) & arrays["served"][:, None, :]).astype(float)
    both = (member * arrays["samples"][:, None, :]) @ joined.transpose(0, 2, 1)
    total, held = both.sum(axis=1), member @ arrays["samples"][:, :, None].astype(float)
    noise = (joined @ (arrays["noise_std"] ** 2)[:, :, None])[:, :, 0]
    with np.errstate(all="ignore"):
        expected = (
            1.0 - np.where(total[:, None] > 0, both / total[:, None], 0.0),
            1.0 - np.where(held > 0, both / held, 0.0),
            np.broadcast_to(np.where(total > 0, noise / total**2, 0.0)[:, None], both.shape),
            np.broadcast_to(total[:, None] > 0, both.shape),
        )
    for found, right in zip(composition(**arrays, count=TASKS, tasks=TASKS), expected, strict=True):
        np.testing.assert_array_equal(found, right)


def test_the_recursion_equals_array_arithmetic_bit_by_bit(constants: Constants) -> None:
    rng = np.random.default_rng(8)
    losses = rng.uniform(0.0, 3.5, (NETWORKS, TASKS, TASKS))
    wrong, missing, noise = rng.uniform(0.0, 1.0, (3, *losses.shape)) * np.array([1.0, 1.0, 0.01])[:, None, None, None]
    own = np.interp(losses, constants.knots, constants.own)
    other = constants.other[0] + constants.other[1] * losses
    mixed = constants.mixed[0] + constants.mixed[1] * losses
    after = losses + (1.0 - wrong) * (own + wrong * mixed) + wrong * other
    after += constants.missing * missing**2 + constants.noise * noise
    expected = np.clip(after, constants.floor, constants.ceiling)
    assert len(np.unique(expected)) > 10
    np.testing.assert_array_equal(recursion(constants, losses, wrong, missing, noise), expected)


def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, np.ndarray]) -> None:
    losses, offsets = np.ones((NETWORKS, TASKS, TASKS)), np.zeros((NETWORKS, USERS, TASKS))
    groups, tasks = arrays["groups"], arrays["identities"]
    with pytest.raises(ValueError, match="do not fit together"):
        announced(losses, groups[:, 1:], offsets)
    with pytest.raises(ValueError, match="do not fit together"):
        own_losses(losses[1:], groups, tasks)
    with pytest.raises(ValueError, match="do not fit together"):
        composition(**arrays | {"served": arrays["served"][:, 1:]}, count=TASKS, tasks=TASKS)
    for wrong in (-1, TASKS):
        beyond = np.full_like(groups, wrong)
        with pytest.raises(IndexError, match="beyond the last"):
            announced(losses, beyond, offsets)
        with pytest.raises(IndexError, match="beyond the last"):
            own_losses(losses, groups, beyond)
        with pytest.raises(IndexError, match="beyond the last"):
            composition(**arrays | {"groups": beyond}, count=TASKS, tasks=TASKS)
