from __future__ import annotations

import numpy as np
import pytest

from covey.identification import clustering_accuracy
from covey.identification.kmeans import Gathered, KMeans
from covey.identification.kmeans_debiased import KMeansDebiased
from covey.identification.products import Products, debiased_products, shrink_lengths
from covey.scenario import load_scenario
from covey.simulation import simulate

QUICK = load_scenario("paper_digits", ["clustering.rule=kmeans_debiased"])
GROUPS = np.arange(24) % 4


def gathered(seed: int, noise: float, size: int = 4000) -> Gathered:
    """Steps of four groups of 24 users, under noise whose spread differs nine-fold in variance between them."""
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(size)
    steps = rng.standard_normal((4, size))[GROUPS]
    noise_std = noise * rng.uniform(1.0, 3.0, 24)
    weights = start - steps - noise_std[:, None] * rng.standard_normal(steps.shape)
    return Gathered(weights.astype(np.float32), start.astype(np.float32), noise_std, np.full(24, 80))


def test_groups_are_found_where_distances_show_the_noise_alone() -> None:
    right = dict.fromkeys((KMeans, KMeansDebiased), 0.0)
    for seed in range(10):
        uploads = gathered(seed, noise=1.5)
        for rule in right:
            found = rule(QUICK).clusters(uploads, 4, np.random.default_rng(seed))
            right[rule] += clustering_accuracy(found, GROUPS) / 10
    assert right[KMeansDebiased] > 0.99
    assert right[KMeans] < 0.8


def test_without_noise_both_find_the_same() -> None:
    uploads = gathered(0, noise=0.0)
    for rule in (KMeans, KMeansDebiased):
        assert clustering_accuracy(rule(QUICK).clusters(uploads, 4, np.random.default_rng(0)), GROUPS) == 1.0


def test_lengths_are_shrunk_by_their_noise_and_real_differences_stay() -> None:
    own = np.array([1.0, 2.0, 3.0, 10.0])
    values = np.full((4, 4), 0.5)
    values[np.diag_indices(4)] = own
    quiet = shrink_lengths(Products(values, np.zeros((4, 4))))
    np.testing.assert_array_equal(quiet, values)
    loud = shrink_lengths(Products(values, np.full((4, 4), 1e6)))
    np.testing.assert_allclose(np.diag(loud), own.mean())
    assert (loud[~np.eye(4, dtype=bool)] == 0.5).all()
    between = shrink_lengths(Products(values, np.full((4, 4), own.var() / 2)))
    np.testing.assert_allclose(np.diag(between) - own.mean(), (own - own.mean()) / 2)
    assert shrink_lengths(Products(np.zeros((0, 0)), np.zeros((0, 0)))).shape == (0, 0)


def test_shrunk_lengths_are_nearer_to_the_truth() -> None:
    rng = np.random.default_rng(0)
    before = after = 0.0
    for _ in range(50):
        steps = rng.standard_normal((12, 650)) * rng.uniform(0.8, 1.2, (12, 1))
        noise_std = rng.uniform(2.0, 6.0, 12)
        products = debiased_products(steps + noise_std[:, None] * rng.standard_normal(steps.shape), noise_std)
        truth = (steps**2).sum(axis=1)
        before += float(((np.diag(products.values) - truth) ** 2).sum())
        after += float(((np.diag(shrink_lengths(products)) - truth) ** 2).sum())
    assert after < before / 4


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_finds_the_groups_pays_for_it_and_has_the_same_bits_with_two_workers(seed: int) -> None:
    one, two = (simulate(QUICK, rounds=3, seed=seed, workers=workers) for workers in (1, 2))
    assert one.records[-1].clustering_accuracy == 1.0
    assert one.ledger.releases.min() >= 2
    np.testing.assert_array_equal(one.models, two.models)
    np.testing.assert_array_equal(one.user_column("identity"), two.user_column("identity"))
