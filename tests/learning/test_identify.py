from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from covey.learning import (
    adjusted_rand_index,
    clustering_accuracy,
    identities_from_scores,
    kmeans_identities,
    matching,
    random_identities,
)


def test_loss_and_similarity_are_weighed_against_each_other() -> None:
    losses = np.array([[1.0, 1.1]])
    similarity = np.array([[-0.5, 0.5]])
    assert identities_from_scores(losses, similarity, 0.0).tolist() == [0]
    assert identities_from_scores(losses, similarity, 0.05).tolist() == [0]
    assert identities_from_scores(losses, similarity, 0.2).tolist() == [1]
    assert identities_from_scores(losses, similarity, 0.2, "loss").tolist() == [0]
    assert identities_from_scores(losses[:, ::-1], similarity, 0.2, "printed_sign").tolist() == [0]


def test_every_user_and_task_is_scored_by_the_formula() -> None:
    rng = np.random.default_rng(0)
    losses, similarity = rng.random((50, 4)), rng.uniform(-1, 1, (50, 4))
    for user, identity in enumerate(identities_from_scores(losses, similarity, 0.3)):
        scores = [0.3 * similarity[user, k] - 0.7 * losses[user, k] for k in range(4)]
        assert identity == scores.index(max(scores))


def test_ties_go_to_the_lowest_task() -> None:
    assert identities_from_scores(np.ones((2, 3)), np.zeros((2, 3)), 0.2).tolist() == [0, 0]


@pytest.mark.parametrize("weight", [0.0, 0.2, 1.0])
def test_a_loss_that_is_not_finite_is_worse_than_any_other(weight: float) -> None:
    losses = np.array([[np.nan, 1e300], [np.inf, 3.0], [2.0, -np.inf], [np.nan, np.nan]])
    similarity = np.array([[1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]])
    assert identities_from_scores(losses, similarity, weight).tolist() == [1, 1, 0, 0]


def test_a_similarity_that_is_not_a_number_counts_as_none() -> None:
    assert identities_from_scores(np.array([[1.0, 1.0]]), np.array([[np.nan, 0.1]]), 0.5).tolist() == [1]


def test_scores_of_different_shapes_or_unknown_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="users, tasks"):
        identities_from_scores(np.zeros((2, 3)), np.zeros((2, 2)), 0.2)
    with pytest.raises(ValueError, match="between 0 and 1"):
        identities_from_scores(np.zeros((2, 3)), np.zeros((2, 3)), 1.2)
    with pytest.raises(ValueError, match="gradient_loss"):
        identities_from_scores(np.zeros((2, 3)), np.zeros((2, 3)), 0.2, "best")  # type: ignore[arg-type]


@pytest.mark.parametrize(("users", "tasks"), [(4, 4), (12, 4), (1, 1), (30, 7)])
def test_random_identities_cover_all_tasks(users: int, tasks: int) -> None:
    for seed in range(50):
        identities = random_identities(users, tasks, np.random.default_rng(seed))
        assert identities.shape == (users,)
        assert set(identities.tolist()) == set(range(tasks))


def test_random_identities_favour_no_task_and_no_user() -> None:
    drawn = np.array([random_identities(6, 3, np.random.default_rng(seed)) for seed in range(6000)])
    shares = np.stack([(drawn == k).mean(0) for k in range(3)])
    # Five standard deviations of a share of 1/3 in 6000 draws.
    assert np.abs(shares - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 6000)


def test_too_few_users_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one user"):
        random_identities(2, 3, np.random.default_rng(0))


@pytest.mark.parametrize("size", [3, 500])
def test_kmeans_finds_the_groups_and_keeps_their_numbers(size: int) -> None:
    rng = np.random.default_rng(0)
    groups = np.array([0, 1, 2, 2, 1, 0, 1, 2, 0, 0])
    centres = 5 * rng.standard_normal((3, size))
    local = (centres[groups] + 0.1 * rng.standard_normal((10, size))).astype(np.float32)
    current = np.array([2, 0, 1, 1, 0, 2, 0, 1, 2, 1])
    identities = kmeans_identities(local, current, 3, np.random.default_rng(1))
    assert identities.tolist() == [[2, 0, 1][g] for g in groups]
    assert identities.dtype == np.int64
    assert np.array_equal(identities, kmeans_identities(local, current, 3, np.random.default_rng(1)))


def test_kmeans_of_equal_models_and_of_fewer_users_than_tasks() -> None:
    rng = np.random.default_rng(0)
    same = kmeans_identities(np.ones((5, 4), np.float32), np.array([2, 2, 2, 1, 0]), 3, rng)
    assert same.tolist() == [2] * 5
    few = kmeans_identities(np.eye(2, 4, dtype=np.float32), np.array([3, 1]), 4, rng)
    assert few.tolist() == [3, 1]


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
