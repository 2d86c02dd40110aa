from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from covey.data import Dataset, UserData
from covey.errors import DataError


def users_of(**changes: Any) -> UserData:
    fields: dict[str, Any] = {
        "x": np.arange(10, dtype=np.float32).reshape(5, 2),
        "y": np.array([0, 1, 1, 0, 2]),
        "offsets": np.array([0, 2, 5]),
        "test_x": np.zeros((2, 2), np.float32),
        "test_y": np.array([0, 1]),
        "test_offsets": np.array([0, 1, 2]),
        "groups": np.array([0, 1]),
        "classes": ("a", "b", "c"),
    }
    return UserData(**(fields | changes))


def test_user_data_counts_samples_and_classes_per_user() -> None:
    users = users_of()
    assert users.users == 2
    assert users.samples.tolist() == [2, 3]
    assert users.shape == (2,)
    assert users.class_counts().tolist() == [[1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"offsets": np.array([0, 2, 4])}, "not from 0 to 5"),
        ({"offsets": np.array([0, 5])}, r"must be \(3,\)"),
        ({"offsets": np.array([0, 5, 5])}, "user 1 has no training samples"),
        ({"test_offsets": np.array([0, 0, 2])}, "user 0 has no test samples"),
        ({"y": np.array([0, 1, 1, 0, 3])}, "label 3"),
        ({"y": np.array([0, 1, 1, 0, -1])}, "label -1"),
        ({"y": np.array([0, 1, 1, 0])}, "5 samples have labels of shape"),
        ({"y": np.zeros(5, np.float32)}, "int64"),
        ({"x": np.zeros((5, 2))}, "float32"),
        ({"x": np.full((5, 2), np.nan, np.float32)}, "sample 0 holds NaN"),
        ({"test_x": np.array([[0, 0], [np.inf, 0]], np.float32)}, "sample 1 holds NaN or infinity"),
        ({"test_x": np.zeros((2, 3), np.float32)}, "both must be equal"),
        ({"groups": np.array([0, -1])}, "groups"),
    ],
)
def test_inconsistent_user_data_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        users_of(**changes)


def test_from_users_joins_arrays_of_any_numeric_type() -> None:
    train = [([[0.5, 1.0]], [1]), (np.ones((3, 2), np.float64), np.array([0, 1, 0], np.uint8))]
    test = [([[0.0, 0.0]], [0]), ([[0.0, 1.0]], [4])]
    users = UserData.from_users(train, test=test, groups=[1, 0])
    assert users.x.dtype == np.float32
    assert users.samples.tolist() == [1, 3]
    assert users.y.tolist() == [1, 0, 1, 0]
    assert users.groups.tolist() == [1, 0]
    assert users.classes == ("0", "1", "2", "3", "4")


@pytest.mark.parametrize(
    ("train", "test", "groups", "words"),
    [
        ([], [], None, "no users"),
        ([([[1.0]], [0])], [], None, "1 users, but test samples of 0"),
        ([([[1.0]], [0])], [([[1.0]], [0, 1])], None, "test labels of user 0"),
        ([([[1.0]], [0.5])], [([[1.0]], [0])], None, "training labels of user 0"),
        ([([1.0], [0])], [([[1.0]], [0])], None, "user 0 have shape"),
        ([([[1.0]], [0]), ([[1.0, 2.0]], [0])], [([[1.0]], [0])] * 2, None, "user 1 have shape"),
        ([([[1.0]], [0])], [([[1.0]], [0])], [0, 1], "one integer for each of the 1 users"),
    ],
)
def test_from_users_names_the_user_whose_arrays_are_wrong(train: Any, test: Any, groups: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        UserData.from_users(train, test=test, groups=groups)


def colour_dataset() -> Dataset:
    x = np.random.default_rng(0).integers(0, 256, (4, 3, 2, 2)).astype(np.uint8)
    test = np.array([False, False, True, True])
    return Dataset(
        "made", x, np.zeros(4, np.int64), test, ("a",), scale=255.0, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0)
    )


def test_normalise_uses_the_constants_of_each_channel() -> None:
    dataset = colour_dataset()
    expected = np.empty(dataset.x.shape)
    for channel in range(3):
        expected[:, channel] = (dataset.x[:, channel] / 255.0 - dataset.mean[channel]) / dataset.std[channel]
    values = dataset.normalise(dataset.x)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, expected, atol=1e-6)
    np.testing.assert_allclose(dataset.restore(values), dataset.x / 255.0, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": np.zeros((4, 2, 2), np.uint8)}, r"shape \(4, 2, 2\)"),
        ({"x": np.zeros((4, 2), np.int64)}, "dtype int64"),
        ({"x": np.zeros((0, 2), np.uint8)}, "empty"),
        ({"x": np.full((4, 2), np.nan, np.float32), "mean": (0.0,), "std": (1.0,)}, "NaN"),
        ({"y": np.zeros(3, np.int64)}, "y has shape"),
        ({"y": np.array([0, 0, 0, 1])}, "label 1"),
        ({"test": np.zeros(4, np.bool_)}, "no test samples"),
        ({"test": np.ones(4, np.bool_)}, "no training samples"),
        ({"test": np.zeros(4)}, "must be bool"),
        ({"writer": np.zeros(5, np.int64)}, "writer has shape"),
        ({"mean": (0.0, 0.0)}, "2 values"),
        ({"std": (0.0,)}, "above 0"),
    ],
)
def test_inconsistent_dataset_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        replace(colour_dataset(), **changes)
