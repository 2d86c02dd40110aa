from __future__ import annotations

import itertools

import numpy as np
import pytest

from covey.identification import clustering_accuracy, partition
from covey.identification.partition import best_partition, partition_value


def points(users: int, size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((users, size))


def by_hand(values: np.ndarray, weights: np.ndarray, labels: np.ndarray) -> float:
    total = 0.0
    for part in set(labels.tolist()):
        members = np.flatnonzero(labels == part)
        pairs = sum(weights[i] * weights[j] * values[i, j] for i in members for j in members)
        total += pairs / weights[members].sum()
    return total


@pytest.mark.parametrize("users", [1, 2, 5, 7])
@pytest.mark.parametrize("clusters", [1, 2, 3, 4])
@pytest.mark.parametrize("indefinite", [False, True])
def test_no_partition_is_better(users: int, clusters: int, indefinite: bool) -> None:
    """Against all partitions; debiased products need not be those of any points."""
    for seed in range(5):
        rng = np.random.default_rng([seed, users, clusters])
        values = (x := points(users, 3, seed)) @ x.T
        if indefinite:
            noise = rng.standard_normal((users, users))
            values = values + noise + noise.T
        weights = rng.uniform(0.5, 2.0, users)
        found = best_partition(values, weights, clusters, rng)
        best = max(
            by_hand(values, weights, np.array(labels)) for labels in itertools.product(range(clusters), repeat=users)
        )
        assert by_hand(values, weights, found) == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert partition_value(values, weights, found) == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert found.shape == (users,)
        assert found.dtype == np.int64
        assert found[0] == 0
        assert found.max() < clusters


def test_the_value_is_what_k_means_minimises() -> None:
    """Sum of weighted squared lengths less the value is the weighted spread within the parts."""
    x, weights = points(30, 4, 0), np.random.default_rng(1).uniform(0.5, 2, 30)
    labels = np.random.default_rng(2).integers(3, size=30)
    spread = 0.0
    for part in range(3):
        members = labels == part
        centre = np.average(x[members], axis=0, weights=weights[members])
        spread += (weights[members] * ((x[members] - centre) ** 2).sum(axis=1)).sum()
    value = partition_value(x @ x.T, weights, labels)
    assert (weights * (x**2).sum(axis=1)).sum() - value == pytest.approx(spread)


def test_groups_of_two_hundred_users_are_found_under_noise_that_drowns_distances() -> None:
    rng = np.random.default_rng(0)
    groups, size = np.arange(200) % 8, 5000
    centres = rng.standard_normal((8, size))
    noise_std = rng.uniform(1.0, 9.0, 200)
    steps = centres[groups] + noise_std[:, None] * rng.standard_normal((200, size))
    values = steps @ steps.T - np.diag(noise_std**2 * size)
    found = best_partition(values, np.ones(200), 8, rng)
    assert clustering_accuracy(found, groups) > 0.99
    noisy = best_partition(steps @ steps.T, np.ones(200), 8, np.random.default_rng(0))
    assert clustering_accuracy(noisy, groups) < 0.9


def test_the_result_depends_on_the_generator_alone_and_parts_are_numbered_by_their_first_user() -> None:
    x = points(40, 3, 5)
    a, b = (best_partition(x @ x.T, np.ones(40), 5, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    first = [int(np.flatnonzero(a == part)[0]) for part in range(a.max() + 1)]
    assert first == sorted(first)


def test_users_that_are_all_the_same_stay_together_and_nobody_is_no_problem() -> None:
    assert best_partition(np.ones((6, 6)), np.ones(6), 3, np.random.default_rng(0)).tolist() == [0] * 6
    assert best_partition(np.zeros((6, 6)), np.ones(6), 3, np.random.default_rng(0)).tolist() == [0] * 6
    assert best_partition(np.zeros((0, 0)), np.ones(0), 3, np.random.default_rng(0)).shape == (0,)
    assert best_partition(np.eye(3), np.ones(3), 9, np.random.default_rng(0)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_units_do_not_matter(scale: float) -> None:
    x = points(20, 3, 1)
    one = best_partition(x @ x.T, np.ones(20), 3, np.random.default_rng(0))
    np.testing.assert_array_equal(one, best_partition(scale * x @ x.T, np.ones(20), 3, np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("values", "weights", "clusters", "why"),
    [
        (np.eye(3), np.ones(2), 2, r"\(n, n\) and \(n,\)"),
        (np.eye(2), np.array([1.0, 0.0]), 2, "positive"),
        (np.full((2, 2), np.nan), np.ones(2), 2, "finite"),
        (np.eye(2), np.ones(2), 0, "at least 1"),
    ],
)
def test_wrong_input_is_refused(values: np.ndarray, weights: np.ndarray, clusters: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        best_partition(values, weights, clusters, np.random.default_rng(0))
    with pytest.raises(ValueError, match="one for each user"):
        partition_value(np.eye(2), np.ones(2), np.zeros(3, np.int64))


@pytest.mark.parametrize("clusters", [1, 2, 3, 5])
def test_starts_are_the_k_means_draws_of_the_generator_one_after_the_other(clusters: int) -> None:
    """Against draws by `Generator.choice`: the users, and the state in which the generator is left."""
    for seed in range(40):
        x = np.random.default_rng(seed).normal(size=(9, 2))
        x[5:] = x[: 4 if seed % 4 else 1]  # users that are the same, up to all but a few
        values, weights = x @ x.T, np.random.default_rng(seed).uniform(1, 3, 9)
        ours, plain = np.random.default_rng(seed), np.random.default_rng(seed)
        found = partition._seeded(values, weights, clusters, 6, ours)
        squares = np.diag(values)
        for row in found:
            seeds = [int(plain.choice(9, p=weights / weights.sum()))]
            while len(seeds) < clusters:
                far = (squares + squares[seeds, None] - 2 * values[seeds]).min(axis=0).clip(0.0) * weights
                far[seeds] = 0.0
                if not far.sum() > 0:
                    break
                seeds.append(int(plain.choice(9, p=far / far.sum())))
            nearest = (2 * values[seeds] - squares[seeds, None]).argmax(axis=0)
            nearest[seeds] = np.arange(len(seeds))
            np.testing.assert_array_equal(row, nearest)
        assert ours.random() == plain.random()


def test_of_ends_that_are_different_partitions_the_one_of_highest_value_is_kept() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        x = rng.normal(size=(7, 3))
        weights, labels = rng.uniform(1, 2, 7), rng.integers(3, size=(5, 7))
        best = max(labels, key=lambda ends: partition_value(x @ x.T, weights, ends))
        np.testing.assert_array_equal(partition._best(x @ x.T, weights, labels), best)
    renamed = np.array([[0, 0, 1, 2], [2, 2, 0, 1], [1, 1, 2, 0]])
    np.testing.assert_array_equal(partition._best(np.eye(4), np.ones(4), renamed), renamed[0])
