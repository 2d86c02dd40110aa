from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from covey.identification import clustering_accuracy
from covey.identification.mixture import Groups, coordinates, fit_mixture, separation
from covey.identification.products import Products, debiased_products, shrink_lengths
from covey.scenario import load_scenario
from covey.simulation import simulate

QUICK = load_scenario("paper_digits", ["clustering.rule=mixture"])


def products(groups: np.ndarray, noise: float, seed: int, size: int = 2000) -> Products:
    rng = np.random.default_rng(seed)
    noise_std = noise * rng.uniform(1.0, 3.0, len(groups))
    steps = rng.standard_normal((groups.max() + 1, size))[groups] + 0.1 * rng.standard_normal((len(groups), size))
    found = debiased_products(steps + noise_std[:, None] * rng.standard_normal(steps.shape), noise_std)
    return Products(shrink_lengths(found), found.variance)


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_groups_and_their_number_are_found_under_noise_larger_than_the_steps(parts: int) -> None:
    groups = np.arange(16) % parts
    for seed in range(5):
        found = fit_mixture(products(groups, 1.0, seed), 4, np.random.default_rng(seed))
        assert found.posterior.shape == (16, parts)
        assert clustering_accuracy(found.posterior.argmax(axis=1), groups) == 1.0
        assert found.separation > 2
        np.testing.assert_allclose(found.posterior.sum(axis=1), 1.0)


def test_where_noise_hides_the_groups_the_overlap_says_so() -> None:
    clear, hidden = (
        fit_mixture(products(np.arange(12) % 4, noise, 0), 4, np.random.default_rng(0)) for noise in (1, 9)
    )
    assert clear.overlap < 0.01
    assert hidden.overlap > 0.3
    assert hidden.posterior.shape == (12, 4)


def test_separation_and_overlap_by_hand() -> None:
    means = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 10.0]])
    assert separation(means, np.array([1.0, 0.5, 0.1])) == pytest.approx(4 / 2)
    assert separation(means, np.array([0.1, 0.1, 2.0])) == pytest.approx(10 / 4)
    assert Groups(np.ones((1, 1)), 1.7).overlap == pytest.approx(2 * norm.sf(1.7))


def test_coordinates_have_the_distances_of_the_points_and_the_noise_that_is_predicted() -> None:
    x = np.random.default_rng(0).standard_normal((9, 3)) * [4.0, 2.0, 1.0]
    quiet, floor = coordinates(Products(x @ x.T, np.zeros((9, 9))), 5)
    assert quiet.shape == (9, 3)
    assert floor == 1e-6
    assert quiet[:, 0].var() == pytest.approx(1.0)
    apart = [np.linalg.norm(y[:, None] - y[None], axis=2) for y in (x, quiet)]
    ratio = apart[0][~np.eye(9, dtype=bool)] / apart[1][~np.eye(9, dtype=bool)]
    np.testing.assert_allclose(ratio, ratio[0])
    rng = np.random.default_rng(1)
    moved = []
    for _ in range(300):
        noise = np.triu(rng.standard_normal((9, 9)), 1) * 2.0
        first, predicted = coordinates(Products(x @ x.T + noise + noise.T, np.full((9, 9), 4.0)), 1)
        moved.append(first[:, 0] * np.sign(first[:, 0] @ quiet[:, 0]) - quiet[:, 0])
    assert np.var(moved) == pytest.approx(predicted, rel=0.4)


@pytest.mark.parametrize("values", [np.zeros((3, 3)), np.ones((3, 3)), np.full((2, 2), -1.0), np.ones((1, 1))])
def test_users_that_do_not_differ_are_no_problem(values: np.ndarray) -> None:
    found = fit_mixture(Products(values, np.zeros_like(values)), 4, np.random.default_rng(0))
    assert np.isfinite(found.posterior).all()
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1.0)


def test_a_run_charges_nothing_but_uploads_and_asks_nobody_before_half_time() -> None:
    history = simulate(QUICK, rounds=10, seed=1002)
    assert not history.ledger.spent["identity"].any()
    assert not simulate(QUICK, rounds=6, seed=1002).ledger.unprotected.any()
    assert history.ledger.unprotected.min() > 0
    assert history.records[-1].clustering_accuracy == 1.0
    assert (history.user_column("identity")[0] == 0).all()
