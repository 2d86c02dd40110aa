from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covey.data import UserData, load_dataset, partition
from covey.data.majority import majority_accuracy
from covey.scenario import load_scenario


def users_of(**changes: Any) -> UserData:
    """Two users with two and three samples; of the training labels 0, 1 and 1, 0, 2."""
    fields: dict[str, Any] = {
        "x": np.zeros((5, 2), np.float32),
        "y": np.array([0, 1, 1, 0, 2]),
        "offsets": np.array([0, 2, 5]),
        "test_x": np.zeros((2, 2), np.float32),
        "test_y": np.array([0, 1]),
        "test_offsets": np.array([0, 1, 2]),
        "groups": np.array([0, 1]),
        "classes": ("a", "b", "c"),
    }
    return UserData(**(fields | changes))


def test_each_user_names_the_most_frequent_class_of_its_own_training_labels() -> None:
    users = users_of(
        y=np.array([0, 1, 1, 0, 1]), offsets=np.array([0, 2, 5]), test_x=np.zeros((5, 2), np.float32),
        test_y=np.array([0, 1, 1, 1, 0]), test_offsets=np.array([0, 2, 5]),
    )  # fmt: skip
    # User 0 has one sample of each class and names the first; user 1 names class 1.
    assert majority_accuracy(users).tolist() == [0.5, 2 / 3]


def test_test_labels_judge_the_guess_and_do_not_choose_it() -> None:
    users = users_of(test_y=np.array([2, 2]))
    # Neither user's most frequent training class is 2, so the test labels must not lead there.
    assert majority_accuracy(users).tolist() == [0.0, 0.0]


def test_one_user_with_one_class_is_always_right() -> None:
    one = UserData.from_users([(np.zeros((3, 2)), [1, 1, 1])], test=[(np.zeros((2, 2)), [1, 1])])
    assert majority_accuracy(one).tolist() == [1.0]


@pytest.mark.parametrize("seed", [0, 7])
def test_it_is_what_counting_by_hand_gives(seed: int) -> None:
    scenario = load_scenario("quick")
    users = partition(load_dataset(scenario.data, groups=scenario.groups, seed=seed), scenario, seed)
    for user, found in enumerate(majority_accuracy(users)):
        own = users.y[users.offsets[user] : users.offsets[user + 1]].tolist()
        most = min(set(own), key=lambda label: (-own.count(label), label))
        judged = users.test_y[users.test_offsets[user] : users.test_offsets[user + 1]].tolist()
        assert found == judged.count(most) / len(judged)
