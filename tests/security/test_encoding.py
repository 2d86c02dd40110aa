from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from covey.security import EncodingError, Parameters, decode, encode


def sizes(users: int = 7, length: int = 4) -> Parameters:
    return Parameters(users, users, 2, 3, length)


@settings(max_examples=60)
@given(arrays.arrays(np.float64, (3, 4), elements=st.floats(-1e4, 1e4)), st.integers(1, 600))
def test_sums_of_words_are_sums_of_values(vectors: np.ndarray, samples: int) -> None:
    given_sizes = sizes()
    words = sum((encode(vector, samples, given_sizes) for vector in vectors), np.zeros(5, dtype=np.uint64))
    total, counted = decode(words, given_sizes)
    assert counted == 3 * samples
    # Against exact rational sums: half a unit of the grid per user, and float64 products and result.
    for column, value in zip(vectors.T, total, strict=True):
        terms = [samples * Fraction(float(entry)) for entry in column]
        bound = 3 * Fraction(2) ** -37 + Fraction(2) ** -52 * sum(abs(term) for term in terms)
        assert abs(Fraction(float(value)) - sum(terms)) <= bound


def test_words_are_rounded_to_the_nearest_unit() -> None:
    unit = 1 / sizes().scale
    words = encode(np.array([0.4, 0.6, -0.6, 1.4]) * unit, 1, sizes())
    assert words.view(np.int64).tolist() == [0, 1, -1, 1, 1]


def test_float32_weights_survive_to_a_millionth() -> None:
    weights = (np.random.default_rng(0).normal(size=4000) * 0.02).astype(np.float32)
    total, samples = decode(encode(weights, 200, sizes(12, 4000)), sizes(12, 4000))
    np.testing.assert_allclose(total / samples, weights, rtol=1e-6, atol=1e-12)


def test_all_users_at_the_limit_do_not_overflow() -> None:
    for users in (1, 7, 12, 1000):
        given_sizes = sizes(users, 2)
        edge = given_sizes.value_limit * (1 - 2e-12)
        one = encode([edge, -edge], 1, given_sizes)
        total, samples = decode(one * np.uint64(users), given_sizes)
        np.testing.assert_allclose(total, [users * edge, -users * edge], rtol=1e-12)
        assert samples == users


@pytest.mark.parametrize(("value", "samples"), [(1.0001, 1), (-1.0001, 1), (1.0 / 3, 4), (1e300, 1)])
def test_overflow_is_refused_with_the_bound(value: float, samples: int) -> None:
    given_sizes = sizes()
    with pytest.raises(EncodingError, match=r"\|samples \* value\| must be at most 1\.91\d*e\+07 for 7 users"):
        encode([0.0, value * given_sizes.value_limit, 0.0, 0.0], samples, given_sizes)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(EncodingError, match="1 of 4 values are NaN or infinite"):
        encode([0.0, bad, 1.0, 2.0], 10, sizes())


def test_wrong_shapes_and_sample_counts_are_refused() -> None:
    with pytest.raises(EncodingError, match=r"4 values, got shape \(5,\)"):
        encode(np.zeros(5), 10, sizes())
    with pytest.raises(EncodingError, match=r"got shape \(1, 4\)"):
        encode(np.zeros((1, 4)), 10, sizes())
    for samples in (0, -3, 2**62):
        with pytest.raises(EncodingError, match="samples must be from 1"):
            encode(np.zeros(4), samples, sizes())
