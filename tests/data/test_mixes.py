from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.data.mixes import class_frequencies, counts, default_mixes, dirichlet_mixes, label_mixes, user_shares
from covey.errors import DataError


def test_default_mixes_of_ten_classes_and_four_groups_are_the_papers() -> None:
    assert default_mixes(10, 4) == ({0: 4, 1: 1}, {1: 3, 2: 1, 4: 1}, {5: 2, 6: 2, 7: 1}, {8: 3, 9: 2})


@given(st.integers(2, 64), st.integers(1, 40))
def test_default_mixes_name_existing_classes_and_differ_between_groups(classes: int, groups: int) -> None:
    if groups > classes * (classes - 1):
        with pytest.raises(DataError, match=r"lower data\.groups"):
            default_mixes(classes, groups)
        return
    mixes = default_mixes(classes, groups)
    assert len(mixes) == groups
    assert all(0 <= c < classes and weight > 0 for mix in mixes for c, weight in mix.items())
    assert all(a != b for a, b in combinations(mixes, 2))


def test_default_mixes_of_a_single_class() -> None:
    assert default_mixes(1, 1) == ({0: 1.0},)
    with pytest.raises(DataError, match="at most 1 "):
        default_mixes(1, 2)


@given(st.integers(0, 10_000), st.integers(1, 70), st.floats(0.01, 10.0))
def test_counts_sum_to_the_sizes_and_stay_within_one_of_the_share(seed: int, classes: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(classes, alpha), size=5)
    shares[0] = np.eye(classes)[0]
    sizes = rng.integers(1, 700, 5)
    found = counts(shares, sizes)
    assert (found.sum(axis=1) == sizes).all()
    assert (found >= 0).all()
    assert (np.abs(found - shares * sizes[:, None]) < 1 + 1e-9).all()
    assert found[0, 0] == sizes[0]


def test_counts_give_the_rest_to_the_largest_remainders() -> None:
    assert counts(np.array([[0.5, 0.3, 0.2]]), np.array([4])).tolist() == [[2, 1, 1]]


def test_user_shares_follow_the_mix_as_closely_as_the_concentration_says() -> None:
    mix = np.tile([0.6, 0.3, 0.1, 0.0], (2000, 1))
    for concentration in (5.0, 100.0):
        shares = user_shares(mix, concentration, seed=1)
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        assert (shares[:, 3] == 0).all()
        # Dirichlet: mean p, variance p (1 - p) / (concentration + 1); 5 standard errors.
        deviation = np.sqrt(mix[0] * (1 - mix[0]) / (concentration + 1))
        assert (np.abs(shares.mean(axis=0) - mix[0]) <= 5 * deviation / np.sqrt(len(mix)) + 1e-12).all()
        np.testing.assert_allclose(shares[:, :3].std(axis=0), deviation[:3], rtol=0.1)


def test_user_shares_stay_finite_at_extreme_concentrations() -> None:
    mix = np.tile([0.999999, 1e-6], (50, 1))
    for concentration in (1e-3, 1e8):
        shares = user_shares(mix, concentration, seed=0)
        assert np.isfinite(shares).all()
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)


def test_group_shares_of_given_mixes(dataset_of, scenario_of) -> None:
    data = scenario_of(tasks=2, mixes=[{"0": 3, "2": 1}, {"1": 5}]).data
    shares = label_mixes(dataset_of(classes=3), data, 2)
    assert shares.tolist() == [[0.75, 0.0, 0.25], [0.0, 1.0, 0.0]]


def test_a_mix_of_an_unknown_class_is_refused(dataset_of, scenario_of) -> None:
    data = scenario_of(tasks=1, mixes=[{"10": 1}]).data
    with pytest.raises(DataError, match="group 0 names class 10, but 'made' has the classes 0 to 9"):
        label_mixes(dataset_of(), data, 1)


def test_dirichlet_groups_follow_alpha_and_the_seed(dataset_of, scenario_of) -> None:
    dataset = dataset_of(train=2, test=1)
    even = scenario_of(tasks=12, partition="dirichlet", dirichlet_alpha=1000.0).data
    skewed = scenario_of(tasks=12, partition="dirichlet", dirichlet_alpha=0.05).data
    assert np.abs(dirichlet_mixes(dataset, even, 12, seed=0) - 0.1).max() < 0.05
    assert np.median(dirichlet_mixes(dataset, skewed, 12, seed=0).max(axis=1)) > 0.6
    assert not np.array_equal(dirichlet_mixes(dataset, even, 12, seed=0), dirichlet_mixes(dataset, even, 12, seed=1))


def test_frequencies_are_those_of_the_training_half(dataset_of) -> None:
    dataset = dataset_of(classes=4, train=6, test=3)
    assert class_frequencies(dataset, 3).tolist() == [[0.25] * 4] * 3
