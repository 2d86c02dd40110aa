from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from covey.data import UserData, partition
from covey.data.dealing import draw_groups, draw_sizes
from covey.data.partitions import label_permutations
from covey.errors import DataError

KINDS = ["label_mix", "label_swap", "rotation", "dirichlet", "writer"]
SMALL: dict[str, Any] = {"samples_min": 20, "samples_max": 60, "test_samples": 15}


def rows_of(x: Any) -> Any:
    """The row numbers that the samples carry, found again after turning: the largest pixel."""
    return x.reshape(len(x), -1).max(axis=1).astype(int)


def same(a: UserData, b: UserData) -> bool:
    names = ("x", "y", "offsets", "test_x", "test_y", "test_offsets", "groups")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_groups_and_halves_are_as_asked(kind: str, dataset_of, scenario_of) -> None:
    dataset = dataset_of(writers=90)
    scenario = scenario_of(partition=kind, **SMALL)
    users = partition(dataset, scenario, seed=3)
    assert users.samples.tolist() == draw_sizes(scenario.data, 12, 3).tolist()
    assert 20 <= users.samples.min() <= users.samples.max() <= 60
    assert np.bincount(users.groups).tolist() == [3, 3, 3, 3]
    rows, test_rows = rows_of(users.x), rows_of(users.test_x)
    assert len(set(rows)) == len(rows), "a training sample was dealt twice"
    assert not dataset.test[rows].any()
    assert dataset.test[test_rows].all()
    for start, end in zip(users.test_offsets, users.test_offsets[1:], strict=False):
        assert len(set(test_rows[start:end])) == end - start <= 15
    if kind != "writer":
        assert (np.diff(users.test_offsets) == 15).all()
    if kind != "label_swap":
        assert (dataset.y[rows] == users.y).all()
        assert (dataset.y[test_rows] == users.test_y).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_repeats_exactly_and_another_differs(kind: str, dataset_of, scenario_of) -> None:
    dataset, scenario = dataset_of(writers=90), scenario_of(partition=kind, **SMALL)
    first = partition(dataset, scenario, seed=1)
    assert same(first, partition(dataset, scenario, seed=1))
    other = partition(dataset, scenario, seed=2)
    assert not np.array_equal(first.samples, other.samples)
    assert not np.array_equal(first.groups, other.groups)
    assert set(rows_of(first.x)) != set(rows_of(other.x))


def test_sizes_reach_both_ends() -> None:
    from covey.scenario.schema import Data

    sizes = draw_sizes(Data.model_validate({"samples_min": 3, "samples_max": 5}), 2000, 0)
    assert np.bincount(sizes, minlength=6)[3:].min() > 550
    assert set(sizes) == {3, 4, 5}


@pytest.mark.parametrize(("users", "tasks"), [(4, 4), (5, 4), (12, 5), (1, 1)])
def test_groups_are_of_equal_size_and_never_empty(users: int, tasks: int) -> None:
    sizes = np.bincount(draw_groups(users, tasks, 0), minlength=tasks)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1
    assert sizes.sum() == users


def test_label_mix_gives_each_group_its_own_classes_in_proportion(dataset_of, scenario_of) -> None:
    scenario = scenario_of(users=40, samples_min=50, samples_max=60, test_samples=50)
    users = partition(dataset_of(train=1200, test=60), scenario, seed=0)
    counts = users.class_counts()
    total = np.stack([counts[users.groups == k].sum(axis=0) for k in range(4)])
    expected = np.zeros((4, 10))
    for k, mix in enumerate([{0: 0.8, 1: 0.2}, {1: 0.6, 2: 0.2, 4: 0.2}, {5: 0.4, 6: 0.4, 7: 0.2}, {8: 0.6, 9: 0.4}]):
        expected[k, list(mix)] = list(mix.values())
    assert (total[expected == 0] == 0).all()
    # Ten users of concentration 100 in a group: standard error below 0.016.
    np.testing.assert_allclose(total / total.sum(axis=1, keepdims=True), expected, atol=0.06)
    # Test samples follow the user's own mix, not the group's.
    own = counts / counts.sum(axis=1, keepdims=True)
    held = np.stack([np.bincount(y, minlength=10) for y in np.split(users.test_y, users.test_offsets[1:-1])]) / 50
    assert np.abs(own - held).max() <= 1 / 50 + 1 / 50 + 1e-9


def test_label_swap_shifts_labels_by_group(dataset_of, scenario_of) -> None:
    dataset = dataset_of()
    users = partition(dataset, scenario_of(partition="label_swap", **SMALL), seed=0)
    group = np.repeat(users.groups, users.samples)
    true = dataset.y[users.x[:, 0, 0, 0].astype(int)]
    assert (users.y == (true + 2 * group) % 10).all()
    test_group = np.repeat(users.groups, np.diff(users.test_offsets))
    assert (users.test_y == (dataset.y[users.test_x[:, 0, 0, 0].astype(int)] + 2 * test_group) % 10).all()


@pytest.mark.parametrize(("classes", "groups"), [(10, 4), (10, 10), (3, 2), (2, 2), (62, 4), (5, 1)])
def test_label_permutations_disagree_on_every_class(classes: int, groups: int) -> None:
    labels = label_permutations(classes, groups)
    assert labels[0].tolist() == list(range(classes))
    for k in range(groups):
        assert sorted(labels[k]) == list(range(classes))
        for other in range(k):
            assert (labels[k] != labels[other]).all()


def test_rotation_turns_every_image_of_a_group(dataset_of, scenario_of) -> None:
    dataset = dataset_of(shape=(2, 4, 4))
    users = partition(dataset, scenario_of(partition="rotation", **SMALL), seed=0)
    for x, groups in (
        (users.x, np.repeat(users.groups, users.samples)),
        (users.test_x, np.repeat(users.groups, np.diff(users.test_offsets))),
    ):
        for row, image, k in zip(rows_of(x), x, groups, strict=True):
            expected = np.stack([np.rot90(channel, k) for channel in dataset.x[row]])
            np.testing.assert_array_equal(image, expected)


def test_writers_belong_to_one_user_and_are_whole(dataset_of, scenario_of) -> None:
    dataset = dataset_of(writers=90)
    users = partition(dataset, scenario_of(partition="writer", **SMALL), seed=0)
    rows = rows_of(users.x)
    owner = np.repeat(np.arange(12), users.samples)
    seen: dict[int, int] = {}
    for row, user in zip(rows, owner, strict=True):
        assert seen.setdefault(int(dataset.writer[row]), int(user)) == user
    available = np.bincount(dataset.writer[~dataset.test])
    for user in range(12):
        held = np.bincount(dataset.writer[rows[owner == user]], minlength=90)
        cut = [w for w in np.flatnonzero(held) if held[w] < available[w]]
        assert len(cut) <= 1, "only the last writer of a user may be cut"
    test_owner = np.repeat(np.arange(12), np.diff(users.test_offsets))
    for row, user in zip(rows_of(users.test_x), test_owner, strict=True):
        assert seen[int(dataset.writer[row])] == user


def advised(error: DataError) -> int:
    return int(re.search(r"at most (\d+)", str(error))[1])


@pytest.mark.parametrize("kind", ["label_mix", "label_swap", "rotation", "dirichlet", "writer"])
def test_too_few_training_samples_names_a_size_that_fits(kind: str, dataset_of, scenario_of) -> None:
    dataset = dataset_of(train=100, test=60, writers=50)
    settings: dict[str, Any] = {"partition": kind, "samples_min": 50, "samples_max": 400, "test_samples": 10}
    with pytest.raises(DataError, match=r"lower data\.samples.* or network\.users") as caught:
        partition(dataset, scenario_of(**settings), seed=0)
    most = advised(caught.value)
    settings |= {"samples_max": most, "samples_min": min(50, most)}
    assert partition(dataset, scenario_of(**settings), seed=0).samples.max() <= most


def test_the_shortage_names_class_group_and_number(dataset_of, scenario_of) -> None:
    dataset = dataset_of(classes=2, train=30)
    scenario = scenario_of(users=2, tasks=2, mixes=[{"0": 1}, {"1": 1}], samples_min=35, samples_max=35)
    with pytest.raises(DataError, match=r"30 training samples of class \d \(c\d\).*need 35 \(group \d 35\), 5 more"):
        partition(dataset, scenario, seed=0)


def test_a_pool_that_just_suffices_is_used_up(dataset_of, scenario_of) -> None:
    dataset = dataset_of(classes=2, train=30)
    scenario = scenario_of(
        users=2, tasks=2, mixes=[{"0": 1}, {"1": 1}], samples_min=30, samples_max=30, test_samples=60
    )
    users = partition(dataset, scenario, seed=0)
    assert sorted(rows_of(users.x)) == list(range(60))


def test_no_size_fits_when_users_outnumber_samples(dataset_of, scenario_of) -> None:
    dataset = dataset_of(classes=2, train=3)
    with pytest.raises(DataError, match=r"lower network\.users$"):
        partition(dataset, scenario_of(users=40, tasks=2, **SMALL), seed=0)


def test_advice_on_test_samples_is_quick_whatever_was_asked(dataset_of, scenario_of) -> None:
    with pytest.raises(DataError, match=r"lower data\.test_samples to at most \d+") as caught:
        partition(dataset_of(train=400, test=20), scenario_of(samples_min=20, samples_max=30, test_samples=10**9), 0)
    assert advised(caught.value) < 200


def test_too_few_test_samples_names_a_number_that_fits(dataset_of, scenario_of) -> None:
    dataset = dataset_of(train=400, test=20)
    settings = {"samples_min": 20, "samples_max": 30}
    with pytest.raises(DataError, match=r"20 test samples of class 0 \(c0\), but user \d+ of group 0") as caught:
        partition(dataset, scenario_of(test_samples=100, **settings), seed=0)
    most = advised(caught.value)
    assert most < 100
    partition(dataset, scenario_of(test_samples=most, **settings), seed=0)


def test_an_unlucky_draw_of_proportions_is_repeated(dataset_of, scenario_of) -> None:
    dataset = dataset_of(classes=2, train=70, test=40)
    settings = {"samples_min": 30, "samples_max": 30, "concentration": 20.0, "test_samples": 30}
    scenario = scenario_of(users=4, tasks=1, mixes=[{"0": 1, "1": 1}], **settings)
    for seed in range(40):
        users = partition(dataset, scenario, seed)
        assert users.samples.tolist() == [30] * 4
        assert same(users, partition(dataset, scenario, seed))


@pytest.mark.parametrize(
    ("kind", "tasks", "shape", "words"),
    [
        ("rotation", 5, (1, 4, 4), "at most 4"),
        ("writer", 5, (1, 4, 4), "at most 4"),
        ("rotation", 4, (1, 4, 5), r"shape \(1, 4, 5\); it needs square images"),
        ("rotation", 2, (16,), r"shape \(16,\); it needs square images"),
        ("writer", 1, (16,), "'made' has no writers"),
        ("label_swap", 11, (16,), "at most 10"),
    ],
)
def test_a_partition_that_cannot_tell_the_groups_apart_is_refused(
    kind: str, tasks: int, shape: tuple[int, ...], words: str, dataset_of, scenario_of
) -> None:
    with pytest.raises(DataError, match=words):
        partition(dataset_of(shape=shape), scenario_of(tasks=tasks, partition=kind, **SMALL), seed=0)


def test_flat_features_can_be_dealt_by_writer_to_one_group(dataset_of, scenario_of) -> None:
    users = partition(dataset_of(shape=(16,), writers=90), scenario_of(tasks=1, partition="writer", **SMALL), seed=0)
    assert users.shape == (16,)


def test_writers_without_test_samples_are_left_out(dataset_of, scenario_of) -> None:
    dataset = dataset_of(writers=90)
    dataset.writer[dataset.test & (dataset.writer < 45)] = 50
    users = partition(dataset, scenario_of(users=4, partition="writer", **SMALL), seed=0)
    assert dataset.writer[rows_of(users.x)].min() >= 45


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tasks", "groups"), [(2, 4), (6, 3)])
def test_data_are_dealt_to_groups_not_to_tasks(kind: str, tasks: int, groups: int, dataset_of, scenario_of) -> None:
    dataset = dataset_of(writers=90)
    found = partition(dataset, scenario_of(tasks=tasks, groups=groups, partition=kind, **SMALL), seed=3)
    assert same(found, partition(dataset, scenario_of(tasks=groups, partition=kind, **SMALL), seed=3))
    assert set(found.groups) == set(range(groups))


@pytest.mark.parametrize("kind", KINDS)
def test_groups_have_the_sizes_asked_for(kind: str, dataset_of, scenario_of) -> None:
    scenario = scenario_of(tasks=2, group_sizes=[7, 3, 1, 1], partition=kind, **SMALL)
    assert scenario.groups == 4
    users = partition(dataset_of(train=600, writers=90), scenario, seed=3)
    assert np.bincount(users.groups).tolist() == [7, 3, 1, 1]
    assert users.groups.tolist() != sorted(users.groups), "users of a group stand in a row"


@pytest.mark.parametrize("kind", ["rotation", "writer"])
def test_angles_that_are_multiples_of_90_are_the_quarter_turns(kind: str, dataset_of, scenario_of) -> None:
    dataset = dataset_of(writers=90)
    plain = partition(dataset, scenario_of(partition=kind, **SMALL), seed=1)
    for rotations in ([0, 90, 180, 270], [360, -270.0, 540, 990]):
        assert same(plain, partition(dataset, scenario_of(partition=kind, rotations=rotations, **SMALL), seed=1))


def test_free_angles_tell_more_than_four_groups_apart(dataset_of, scenario_of) -> None:
    dataset = dataset_of(shape=(2, 5, 5))
    scenario = scenario_of(tasks=4, partition="rotation", rotations=[0, 15, 90, 105, 180, 195], **SMALL)
    assert scenario.groups == 6
    users = partition(dataset, scenario, seed=0)
    turned = np.repeat(users.groups, users.samples)
    plain = partition(dataset, scenario_of(tasks=6, partition="label_swap", **SMALL), seed=0)
    for group, degrees in enumerate(scenario.data.rotations):
        np.testing.assert_array_equal(users.x[turned == group], by_hand(plain.x[turned == group], degrees))


def by_hand(images: Any, degrees: float) -> Any:
    """Every pixel one by one: where it came from, if that is inside; 0 is what these data are without a pixel."""
    side, angle = images.shape[2], np.deg2rad(degrees)
    found, middle = np.zeros_like(images), (side - 1) / 2
    for row in range(side):
        for column in range(side):
            # A point at x to the right and y upwards was turned by `degrees`, so it came from where -degrees leads.
            x, y = column - middle, middle - row
            old_x, old_y = np.cos(angle) * x + np.sin(angle) * y, -np.sin(angle) * x + np.cos(angle) * y
            at = int(np.floor(middle - old_y + 0.5 + 1e-9)), int(np.floor(middle + old_x + 0.5 + 1e-9))
            if min(at) >= 0 and max(at) < side:
                found[:, :, row, column] = images[:, :, at[0], at[1]]
    return found


def test_rotations_need_a_partition_that_turns(dataset_of, scenario_of) -> None:
    with pytest.raises(DataError, match=r"'label_mix' does not turn images; set data\.partition = 'rotation'"):
        partition(dataset_of(), scenario_of(rotations=[0, 45], **SMALL), seed=0)
    with pytest.raises(DataError, match=r"give an angle for each in data\.rotations"):
        partition(dataset_of(), scenario_of(tasks=5, partition="rotation", **SMALL), seed=0)
    flat = scenario_of(tasks=2, partition="rotation", rotations=[0, 360], **SMALL)
    assert partition(dataset_of(shape=(16,)), flat, seed=0).shape == (16,), "nothing is turned"
