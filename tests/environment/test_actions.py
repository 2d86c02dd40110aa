from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.environment import allowed, subset_count, subset_numbers, subsets
from covey.errors import PolicyError

sizes = st.integers(1, 9).flatmap(lambda users: st.tuples(st.just(users), st.integers(1, users + 1)))


def test_twelve_users_and_four_blocks_have_794_subsets() -> None:
    table = subsets(12, 4)
    assert len(table) == subset_count(12, 4) == 794
    assert not table[0].any()
    assert np.all(np.diff(table.sum(axis=1)) >= 0)
    assert table.sum(axis=1).max() == 4
    assert len(np.unique(table, axis=0)) == 794


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        subsets(5, 2)[0, 0] = True


@given(sizes, st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_numbering_round_trip(size: tuple[int, int], seed: int) -> None:
    users, blocks = size
    table = subsets(users, blocks)
    numbers = np.random.default_rng(seed).integers(0, len(table), (3, 2))
    np.testing.assert_array_equal(subset_numbers(table[numbers], blocks), numbers)
    np.testing.assert_array_equal(subset_numbers(table, blocks), np.arange(len(table)))


def test_a_selection_beyond_the_blocks_has_no_number() -> None:
    with pytest.raises(ValueError, match="more than 2 users"):
        subset_numbers(np.array([True, True, True, False]), 2)


def test_too_many_subsets_are_refused_with_a_way_out() -> None:
    with pytest.raises(PolicyError, match=r"251,176 subsets.*actions='binary'"):
        subsets(50, 4)


@given(sizes, st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_allowed_subsets_equal_brute_force(size: tuple[int, int], seed: int) -> None:
    users, blocks = size
    eligible = np.random.default_rng(seed).random((2, 3, users)) < 0.6
    found = allowed(eligible, blocks)
    for network in range(2):
        for station in range(3):
            expected = [
                all(eligible[network, station, user] for user in np.flatnonzero(members))
                for members in subsets(users, blocks)
            ]
            assert found[network, station].tolist() == expected


def test_with_nobody_eligible_only_the_empty_subset_is_allowed() -> None:
    assert allowed(np.zeros(12, dtype=bool), 4).nonzero()[0].tolist() == [0]
