from __future__ import annotations

import numpy as np
import pytest

from covey.identification import best_score, random_identities


def test_loss_and_similarity_are_weighed_against_each_other() -> None:
    losses = np.array([[1.0, 1.1]])
    similarity = np.array([[-0.5, 0.5]])
    assert best_score(losses, similarity, 0.0).tolist() == [0]
    assert best_score(losses, similarity, 0.05).tolist() == [0]
    assert best_score(losses, similarity, 0.2).tolist() == [1]


def test_every_user_and_task_is_scored_by_the_formula() -> None:
    rng = np.random.default_rng(0)
    losses, similarity = rng.random((50, 4)), rng.uniform(-1, 1, (50, 4))
    for user, identity in enumerate(best_score(losses, similarity, 0.3)):
        scores = [0.3 * similarity[user, k] - 0.7 * losses[user, k] for k in range(4)]
        assert identity == scores.index(max(scores))


def test_ties_go_to_the_lowest_task() -> None:
    assert best_score(np.ones((2, 3)), np.zeros((2, 3)), 0.2).tolist() == [0, 0]


@pytest.mark.parametrize("weight", [0.0, 0.2, 1.0])
def test_a_loss_that_is_not_finite_is_worse_than_any_other(weight: float) -> None:
    losses = np.array([[np.nan, 1e300], [np.inf, 3.0], [2.0, -np.inf], [np.nan, np.nan]])
    similarity = np.array([[1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]])
    assert best_score(losses, similarity, weight).tolist() == [1, 1, 0, 0]


def test_a_similarity_that_is_not_a_number_counts_as_none() -> None:
    assert best_score(np.array([[1.0, 1.0]]), np.array([[np.nan, 0.1]]), 0.5).tolist() == [1]


def test_scores_of_different_shapes_or_unknown_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="users, tasks"):
        best_score(np.zeros((2, 3)), np.zeros((2, 2)), 0.2)
    with pytest.raises(ValueError, match="between 0 and 1"):
        best_score(np.zeros((2, 3)), np.zeros((2, 3)), 1.2)


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
