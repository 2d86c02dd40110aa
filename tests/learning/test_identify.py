from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import chisquare
from sklearn.metrics import adjusted_rand_score

from covey.learning import (
    adjusted_rand_index,
    clustering_accuracy,
    identities_from_scores,
    identity_noise_scale,
    kmeans_identities,
    matching,
    noisy_identities,
    random_identities,
    released_identities,
)
from covey.privacy.noise import ReplayNoise, SecureNoise


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


SCORES = np.array([0.3, -0.2, 0.0, 0.25])
DRAWS = 40_000


def announced(scores: np.ndarray, scale: float, normals: np.ndarray) -> np.ndarray:
    """(K,) how often each task is announced with these scores."""
    draws = len(normals)
    found = noisy_identities(np.tile(scores, (draws, 1)), np.full(draws, scale), normals)
    return np.bincount(found, minlength=len(scores))


@pytest.mark.parametrize("scale", [0.05, 0.2, 5.0])
def test_the_noisy_maximum_follows_the_exponential_law(scale: float) -> None:
    counts = announced(SCORES, scale, np.random.default_rng(0).standard_normal((DRAWS, 2, 4)))
    assert chisquare(counts, DRAWS * softmax(SCORES / scale)).pvalue > 1e-3
    if scale < 1:
        for wrong in (2 / 3, 3 / 2):
            assert chisquare(counts, DRAWS * softmax(SCORES / (wrong * scale))).pvalue < 1e-9


@pytest.mark.parametrize("source", [ReplayNoise(3), SecureNoise()])
def test_the_law_holds_with_the_noise_of_runs(source: ReplayNoise | SecureNoise) -> None:
    normals = np.stack([source(0, number, "identity_noise", 8).reshape(2, 4) for number in range(10_000)])
    # Secure noise is never the same; a right law fails once in a million runs.
    assert chisquare(announced(SCORES, 0.2, normals), 10_000 * softmax(SCORES / 0.2)).pvalue > 1e-6


def test_the_noisy_maximum_survives_the_edges() -> None:
    scores, scale = np.array([[0.0, 1.0, 2.0]] * 2), np.array([1e-300, 1.0])
    assert noisy_identities(scores, scale, np.full((2, 2, 3), 1e-200)).tolist() == [2, 2]
    assert noisy_identities(scores, scale, np.zeros((2, 2, 3))).tolist() == [2, 2]
    assert noisy_identities(np.zeros((0, 3)), np.zeros(0), np.zeros((0, 2, 3))).tolist() == []
    # Noise that is huge against the scores makes all tasks alike.
    counts = announced(np.array([0.0, 1.0]), 1e6, np.random.default_rng(1).standard_normal((DRAWS, 2, 2)))
    assert chisquare(counts).pvalue > 1e-3


@given(st.integers(1, 10_000), st.floats(1e-3, 1e3), st.floats(1e-6, 1e3))
def test_the_scale_is_two_sensitivities_over_epsilon(samples: int, width: float, rho: float) -> None:
    epsilon = np.sqrt(8 * rho)
    assert identity_noise_scale(np.array([samples]), width, rho)[0] == pytest.approx(2 * (width / samples) / epsilon)


@settings(max_examples=100)
@given(st.integers(2, 6), st.floats(1e-4, 2.0), st.integers(0, 2**32 - 1))
def test_an_announcement_costs_its_rho_whatever_the_scores(tasks: int, rho: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    samples, width = 50, 2.8
    scale = identity_noise_scale(np.array([samples]), width, rho)[0]
    scores = rng.choice([0.01, 1.0, 30.0]) * rng.standard_normal(tasks)
    # Neighbours differ by at most width / samples in every score; at the corners they differ most.
    moved = scores + width / samples * rng.choice([-1.0, 1.0], tasks)
    here, there = log_softmax(scores / scale), log_softmax(moved / scale)
    assert np.abs(here - there).max() <= np.sqrt(8 * rho) + 1e-9
    for order in (1.001, 1.5, 2.0, 8.0, 64.0):  # Renyi divergences
        divergence = logsumexp(order * here + (1 - order) * there) / (order - 1)
        assert divergence <= order * rho * (1 + 1e-9) + 1e-9


def released_by_loop(
    steps: np.ndarray, task: np.ndarray, samples: np.ndarray, paths: np.ndarray, totals: np.ndarray
) -> list[int]:
    """One user after the other: the cosine of its step with every path, its own part taken out."""
    found = []
    for step, own, count in zip(steps, task, samples, strict=True):
        cosines = []
        for k, path in enumerate(paths):
            rest = path - count / totals[k] * step if k == own else path
            length = np.linalg.norm(rest)
            cosines.append(-np.inf if length <= 1e-6 * np.linalg.norm(step) else step @ rest / length)
        found.append(int(own) if np.isneginf(cosines).all() else int(np.argmax(cosines)))
    return found


@pytest.mark.parametrize("seed", range(10))
def test_tasks_from_releases_are_those_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    users, tasks, length = 9, 4, 30
    steps, paths = rng.standard_normal((users, length)), rng.standard_normal((tasks, length))
    task, samples = rng.integers(tasks, size=users), rng.integers(50, 100, size=users)
    totals = np.bincount(task, weights=samples, minlength=tasks).astype(float)
    paths[rng.integers(tasks)] = 0
    for k in range(tasks):  # models have gone where their users led them, and a little further
        if totals[k]:
            paths[k] = samples[task == k] @ steps[task == k] / totals[k] + 0.5 * paths[k]
    found = released_identities(steps, task, samples, paths, totals)
    assert found.tolist() == released_by_loop(steps, task, samples, paths, totals)
    single = released_identities(
        steps.astype(np.float32), task, samples, paths.astype(np.float32), totals.astype(np.float64)
    )
    assert single.tolist() == found.tolist()


def test_a_user_does_not_follow_its_own_noise() -> None:
    rng = np.random.default_rng(0)
    length, samples = 1000, np.array([60, 60])
    towards = np.zeros((2, length))
    towards[0, 0] = towards[1, 1] = 3.0
    # User 0 is of kind 1 but in task 0, with noise ten times as long as its gradient; so is user 1 of kind 0 there.
    steps = towards[[1, 0]] + rng.standard_normal((2, length))
    paths = 5 * towards
    paths[0] += steps.mean(axis=0)
    totals = np.array([120.0, 0.0])
    assert released_identities(steps[:1], np.array([0]), samples[:1], paths, totals).tolist() == [1]
    with_noise = [steps[0] @ path / np.linalg.norm(path) for path in paths]
    assert np.argmax(with_noise) == 0


def test_users_for_whom_no_model_has_moved_keep_their_task() -> None:
    step = np.array([[1.0, 2.0, 2.0]])
    still = np.zeros((3, 3))
    assert released_identities(step, np.array([1]), np.array([10]), still, np.array([0.0, 10.0, 0.0])).tolist() == [1]
    # Alone in its task, its model has moved by its own step only.
    alone = still.copy()
    alone[1] = step
    assert released_identities(step, np.array([1]), np.array([10]), alone, np.array([0.0, 10.0, 0.0])).tolist() == [1]
    # Where others have moved, it compares with them alone, even if they went the other way.
    alone[2] = -step
    assert released_identities(step, np.array([1]), np.array([10]), alone, np.array([0.0, 10.0, 9.0])).tolist() == [2]
    assert released_identities(0 * step, np.array([2]), np.array([10]), still, np.full(3, 10.0)).tolist() == [2]
    nobody = released_identities(np.zeros((0, 3)), np.zeros(0, int), np.zeros(0, int), still, np.zeros(3))
    assert nobody.tolist() == []
