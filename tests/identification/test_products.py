"""Debiased products: unbiased, with the variance they state, where raw ones are not."""

from __future__ import annotations

import numpy as np
import pytest

from covey.identification import products as module
from covey.identification.products import Products, debiased_products, shrink_lengths

SIZE, USERS, DRAWS = 60, 5, 4000
#: Users with very different noise: twenty-fold in its standard deviation, and one without any.
UNEQUAL = np.array([0.0, 0.1, 0.5, 1.0, 2.0])


def true_steps() -> np.ndarray:
    """(n, D) steps of one squared length, so that the mean length that stands for all is everybody's own."""
    steps = np.random.default_rng(0).standard_normal((USERS, SIZE))
    return steps / np.linalg.norm(steps, axis=1, keepdims=True) * 3.0


def draw(noise_std: np.ndarray, draws: int = DRAWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Debiased products, stated variances and raw products, (draws, n, n) each."""
    steps, rng = true_steps(), np.random.default_rng(1)
    noised = steps + noise_std[:, None] * rng.standard_normal((draws, USERS, SIZE))
    found = [debiased_products(one, noise_std) for one in noised]
    return np.stack([one.values for one in found]), np.stack([one.variance for one in found]), noised @ noised.mT


def distances(products: np.ndarray) -> np.ndarray:
    """(..., n, n) squared distances that go with products (..., n, n)."""
    own = np.diagonal(products, axis1=-2, axis2=-1)
    return own[..., :, None] + own[..., None, :] - 2 * products


def deviations(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """(n, n) how far the mean of `found` (draws, n, n) is from `expected`, in standard errors; 0 where none varies."""
    error = found.std(axis=0) / np.sqrt(len(found))
    off = found.mean(axis=0) - expected
    exact = error < 1e-12
    np.testing.assert_allclose(off[exact], 0.0, atol=1e-9)
    return np.divide(off, error, out=np.zeros_like(off), where=~exact)


@pytest.mark.parametrize("noise_std", [UNEQUAL, np.full(USERS, 0.7)], ids=["unequal", "equal"])
def test_products_and_distances_are_unbiased_and_raw_ones_are_not(noise_std: np.ndarray) -> None:
    truth = true_steps() @ true_steps().T
    values, _, raw = draw(noise_std)
    assert np.abs(deviations(values, truth)).max() < 4.5
    assert np.abs(deviations(distances(values), distances(truth))).max() < 4.5
    bias = noise_std**2 * SIZE
    noisy = noise_std > 0
    # The same test turns raw ones away: a product with itself carries tau^2 D, a distance those of both users.
    own = np.diag(deviations(raw, truth))
    assert (own[noisy] > 10).all()
    np.testing.assert_allclose(np.diag(raw.mean(axis=0) - truth)[noisy], bias[noisy], rtol=0.1)
    apart = ~np.eye(USERS, dtype=bool)
    both = (bias[:, None] + bias[None, :])[apart]
    assert (deviations(distances(raw), distances(truth))[apart][both > 0] > 10).all()
    np.testing.assert_allclose((distances(raw).mean(axis=0) - distances(truth))[apart], both, rtol=0.1, atol=0.2)
    # Products of two different users need no debiasing.
    np.testing.assert_allclose(values[:, apart], raw[:, apart], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("noise_std", [UNEQUAL, np.full(USERS, 0.7)], ids=["unequal", "equal"])
def test_the_stated_variance_is_that_of_the_products(noise_std: np.ndarray) -> None:
    values, stated, _ = draw(noise_std)
    found, said = values.var(axis=0), stated.mean(axis=0)
    noisy = said > 1e-9
    # A variance of 4000 draws is known to about 2 %, one of squares a little less.
    np.testing.assert_allclose(found[noisy], said[noisy], rtol=0.15)
    assert (found[~noisy] < 1e-12).all()
    # Two thirds and three halves of it would be told apart.
    for wrong in (2 / 3, 3 / 2):
        assert not np.allclose(found[noisy], wrong * said[noisy], rtol=0.15)


def test_without_noise_products_are_exact_and_certain() -> None:
    steps = true_steps()
    found = debiased_products(steps.astype(np.float32), np.zeros(USERS))
    np.testing.assert_allclose(found.values, steps @ steps.T, rtol=1e-5, atol=1e-5)
    assert not found.variance.any()
    assert found.users == USERS
    np.testing.assert_array_equal(shrink_lengths(found), found.values)


def test_one_user_and_none() -> None:
    one = debiased_products(np.ones((1, 4)), np.array([0.5]))
    np.testing.assert_allclose(one.values, [[4 - 0.25 * 4]])
    np.testing.assert_allclose(one.variance, [[2 * 0.0625 * 4 + 4 * 0.25 * 3]])
    none = debiased_products(np.zeros((0, 4)), np.zeros(0))
    assert none.values.shape == none.variance.shape == shrink_lengths(none).shape == (0, 0)
    assert none.users == 0


def test_lengths_below_zero_do_not_make_variances_negative() -> None:
    """Steps of pure noise: their debiased squared lengths are below 0 in half of the draws."""
    rng = np.random.default_rng(0)
    below = 0
    for _ in range(50):
        found = debiased_products(rng.standard_normal((4, 30)), np.ones(4))
        assert (found.variance >= 30 - 1e-9).all()
        below += int((np.diag(found.values) < 0).sum())
    assert 50 < below < 150


def test_large_models_are_taken_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = np.random.default_rng(0).standard_normal((6, 1000)).astype(np.float32)
    whole = debiased_products(steps, np.full(6, 0.1))
    monkeypatch.setattr(module, "_COLUMNS", 7)
    pieces = debiased_products(steps, np.full(6, 0.1))
    np.testing.assert_allclose(pieces.values, whole.values, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(pieces.variance, whole.variance, rtol=1e-12)


def test_a_step_that_overflows_float32_squares_does_not_overflow() -> None:
    found = debiased_products(np.full((2, 8), 1e30, np.float32), np.zeros(2))
    np.testing.assert_allclose(found.values, 8e60, rtol=1e-6)


def test_shrinking_moves_the_noisiest_most_and_products_of_two_not_at_all() -> None:
    values = np.diag([1.0, 9.0, 9.0]) + 0.25
    variance = np.diag([0.0, 1.0, 100.0])
    shrunk = shrink_lengths(Products(values, variance))
    apart = ~np.eye(3, dtype=bool)
    np.testing.assert_array_equal(shrunk[apart], values[apart])
    moved = np.abs(np.diag(shrunk) - np.diag(values))
    assert moved[0] == pytest.approx(0.0, abs=1e-9)
    assert moved[2] >= moved[1]
