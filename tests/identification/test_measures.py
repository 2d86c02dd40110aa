from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from covey.identification import adjusted_rand_index, clustering_accuracy, matching


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
