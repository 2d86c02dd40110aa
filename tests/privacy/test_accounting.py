from __future__ import annotations

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.privacy import epsilon, release_rho, rho_for_epsilon, sensitivity


def test_reference_values() -> None:
    # M = 1, X = 500, std 0.05 on the mean = 25 on the sum, 100 rounds, delta = 1e-5.
    rho = float(release_rho(1.0, 25.0))
    assert rho == pytest.approx(0.0032)
    assert epsilon(100 * rho, 1e-5, "simple") == pytest.approx(4.1588, abs=1e-4)
    assert epsilon(100 * rho, 1e-5, "zcdp") == pytest.approx(3.6659, abs=1e-4)
    assert epsilon(100 * rho, 1e-5, "exact") == pytest.approx(3.3869, abs=1e-4)


def test_rho_is_the_papers_formula_for_replace_one() -> None:
    samples, noise_std, bound = np.array([200.0, 400.0, 600.0]), np.array([3.0, 3.5, 4.0]), 1200.0
    paper = 2 * (bound / (samples * noise_std)) ** 2
    np.testing.assert_allclose(release_rho(bound / samples, noise_std), paper)
    np.testing.assert_allclose(release_rho(bound / samples, noise_std, "add_remove"), paper / 4)


def test_sensitivity_is_attained_by_real_neighbours() -> None:
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(50, 8))
    gradients /= np.linalg.norm(gradients, axis=1, keepdims=True)
    replaced = gradients.copy()
    replaced[7] = -gradients[7]
    change = np.linalg.norm(gradients.sum(0) - replaced.sum(0))
    assert change == pytest.approx(float(sensitivity(1.0, "replace_one")))
    removed = np.linalg.norm(gradients.sum(0) - np.delete(gradients, 7, axis=0).sum(0))
    assert removed == pytest.approx(float(sensitivity(1.0, "add_remove")))


@settings(max_examples=100)
@given(rho=st.floats(1e-5, 50), delta=st.sampled_from([1e-3, 1e-5, 1e-8]))
def test_conversions_are_ordered_and_zcdp_agrees_with_dp_accounting(rho: float, delta: float) -> None:
    exact, zcdp, simple = (epsilon(rho, delta, m) for m in ("exact", "zcdp", "simple"))
    assert exact <= zcdp * (1 + 1e-9) <= simple * (1 + 1e-9)
    # Theirs minimises over a fixed list of orders, so it is never below ours and close to it.
    theirs = rdp.RdpAccountant().compose(dp_accounting.ZCDpEvent(rho)).get_epsilon(delta)
    assert zcdp <= theirs * (1 + 1e-6)
    if 1e-3 < rho < 5:
        assert zcdp == pytest.approx(theirs, rel=0.02)


def test_edges() -> None:
    assert epsilon(0.0, 1e-5) == 0.0
    assert math.isinf(epsilon(math.inf, 1e-5))
    assert np.isinf(release_rho(1.0, 0.0))
    for bad in (-1.0, math.nan):
        with pytest.raises(ValueError, match="rho must be 0 or more"):
            epsilon(bad, 1e-5)
        with pytest.raises(ValueError, match="noise_std must be 0 or more"):
            release_rho(1.0, bad)
    with pytest.raises(ValueError, match="delta"):
        epsilon(1.0, 1.0)
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        rho_for_epsilon(0.0, 1e-5)


@settings(max_examples=50)
@given(target=st.floats(0.01, 100), method=st.sampled_from(["exact", "zcdp", "simple"]))
def test_rho_for_epsilon_is_the_largest_affordable(target: float, method) -> None:
    rho = rho_for_epsilon(target, 1e-5, method)
    assert epsilon(rho, 1e-5, method) <= target
    assert epsilon(rho * 1.001, 1e-5, method) > target


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 1 - 1e-16])
@pytest.mark.parametrize("method", ["exact", "zcdp", "simple"])
def test_epsilon_grows_from_the_smallest_cost_to_the_largest(method, delta) -> None:
    values = [epsilon(10.0**power, delta, method) for power in range(-40, 60)]
    assert all(math.isfinite(value) and value >= 0 for value in values)
    assert all(later >= earlier * (1 - 1e-9) - 1e-10 for earlier, later in itertools.pairwise(values))
