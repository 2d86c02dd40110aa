from __future__ import annotations

import numpy as np
import pytest

from covey.identification.kmeans import kmeans_identities


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
