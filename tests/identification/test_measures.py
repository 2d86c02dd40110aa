from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from covey.identification import adjusted_rand_index, clustering_accuracy, matching


def brute_force_accuracy(identities: np.ndarray, groups: np.ndarray, size: int) -> float:
    return max(float(np.mean(np.array(p)[identities] == groups)) for p in itertools.permutations(range(size)))


@pytest.mark.parametrize("seed", range(20))
def test_accuracy_and_matching_are_those_of_the_best_naming(seed: int) -> None:
    rng = np.random.default_rng(seed)
    identities, groups = rng.integers(4, size=12), rng.integers(4, size=12)
    best = brute_force_accuracy(identities, groups, 4)
    assert clustering_accuracy(identities, groups) == pytest.approx(best)
    names = matching(identities, groups, 4)
    assert sorted(names.tolist()) == [0, 1, 2, 3]
    assert np.mean(names[identities] == groups) == pytest.approx(best)
    assert adjusted_rand_index(identities, groups) == pytest.approx(adjusted_rand_score(groups, identities))


@pytest.mark.parametrize(("tasks", "count"), [(2, 4), (3, 4), (5, 3), (6, 4), (1, 3), (3, 1)])
def test_more_or_fewer_tasks_than_groups_are_matched_one_to_one(tasks: int, count: int) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        identities, groups = rng.integers(tasks, size=12), rng.integers(count, size=12)
        names = matching(identities, groups, tasks, count)
        named = names[names >= 0]
        assert names.shape == (tasks,)
        assert len(set(named.tolist())) == len(named) == min(tasks, count)
        # Tasks beyond the groups may take names beyond them, which nobody has.
        names_to_give = range(max(tasks, count))
        best = max(
            float(np.mean(np.array(p)[identities] == groups)) for p in itertools.permutations(names_to_give, tasks)
        )
        assert clustering_accuracy(identities, groups) == pytest.approx(best)
        assert np.mean(names[identities] == groups) == pytest.approx(best)
        assert adjusted_rand_index(identities, groups) == pytest.approx(adjusted_rand_score(groups, identities))


def test_perfect_groups_that_share_tasks_or_leave_some_over() -> None:
    groups = np.repeat(np.arange(4), 3)
    assert clustering_accuracy(groups // 2, groups) == 0.5
    assert clustering_accuracy(7 - groups, groups) == adjusted_rand_index(7 - groups, groups) == 1.0
    assert matching(7 - groups, groups, 8).tolist() == [-1, -1, -1, -1, 3, 2, 1, 0]
    assert matching(np.full(12, -1), groups, 3, 4).tolist() == [-1, -1, -1]


def test_scores_of_perfect_and_of_trivial_groupings() -> None:
    groups = np.array([0, 0, 1, 1, 2])
    assert clustering_accuracy(np.array([2, 2, 0, 0, 1]), groups) == 1.0
    assert adjusted_rand_index(np.array([2, 2, 0, 0, 1]), groups) == 1.0
    assert clustering_accuracy(np.zeros(5, np.int64), groups) == pytest.approx(0.4)
    assert adjusted_rand_index(np.zeros(5, np.int64), np.zeros(5, np.int64)) == 1.0
    assert adjusted_rand_index(np.zeros(1, np.int64), np.zeros(1, np.int64)) == 1.0


def test_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="one for each user"):
        clustering_accuracy(np.array([0, 1]), np.array([0, 1, 1]))
    with pytest.raises(ValueError, match="0 to 1"):
        matching(np.array([0, 2]), np.array([0, 1]), 2)
    with pytest.raises(ValueError, match="0 to 2"):
        matching(np.array([0, 1]), np.array([0, 3]), 2, 3)
