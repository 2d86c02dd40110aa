from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import stats

from covey.privacy import NoNoise, ReplayNoise, SecureNoise, build_noise

SOURCES = [ReplayNoise(3), SecureNoise()]


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
def test_the_right_scale_is_accepted_and_two_thirds_and_three_halves_are_rejected(source) -> None:
    sample = source(1, 2, "noise", 20_001)
    assert sample.dtype == np.float64
    assert sample.shape == (20_001,)
    assert stats.kstest(sample, "norm").pvalue > 1e-6
    for scale in (2 / 3, 3 / 2):
        assert stats.kstest(sample * scale, "norm").pvalue < 1e-6


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
def test_users_rounds_and_purposes_have_unrelated_streams(source) -> None:
    streams = [source(0, 0, "noise", 4000), source(1, 0, "noise", 4000), source(0, 1, "noise", 4000),
               source(0, 0, "kmeans_noise", 4000)]  # fmt: skip
    correlation = np.corrcoef(streams) - np.eye(4)
    assert np.abs(correlation).max() < 6 / np.sqrt(4000)


def test_replay_repeats_and_secure_does_not() -> None:
    np.testing.assert_array_equal(ReplayNoise(1)(2, 3, "noise", 10), ReplayNoise(1)(2, 3, "noise", 10))
    assert not np.array_equal(SecureNoise()(2, 3, "noise", 10), SecureNoise()(2, 3, "noise", 10))


def test_sources_by_name_travel_to_workers() -> None:
    for kind, expected in (("replay", ReplayNoise), ("secure", SecureNoise), ("off", NoNoise)):
        source = pickle.loads(pickle.dumps(build_noise(kind, 0)))
        assert isinstance(source, expected)


def test_no_noise_is_never_zero_noise() -> None:
    with pytest.raises(RuntimeError, match="off"):
        NoNoise()(0, 0, "noise", 3)


def test_sizes() -> None:
    for size in (0, 1, 2, 7):
        assert len(SecureNoise()(0, 0, "noise", size)) == size
