from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from tests.security.rounds import parameters

from covey.security import Parameters, Session, default_threshold

GOOD: dict[str, Any] = {"users": 6, "threshold": 4, "minimum": 2, "slots": 3, "length": 5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": 0, "threshold": 0}, "users must be from 1"),
        ({"users": 2**16, "threshold": 2**16}, "users must be from 1"),
        ({"threshold": 3}, "above half of the 6 users"),
        ({"threshold": 7}, "at most all"),
        ({"minimum": 1}, "minimum must be 2 or more"),
        ({"slots": 0}, "slots and length"),
        ({"length": 0}, "slots and length"),
        ({"scale": 0.0}, "scale must be above 0"),
        ({"scale": float("nan")}, "scale must be above 0"),
    ],
)
def test_wrong_sizes_are_refused(change: dict[str, Any], message: str) -> None:
    Parameters(**GOOD)
    with pytest.raises(ValueError, match=message):
        Parameters(**(GOOD | change))


def test_limits_follow_from_the_word_size() -> None:
    given = Parameters(12, 9, 2, 4, 650)
    assert given.words_per_upload == 4 * 651
    assert 12 * given.word_limit <= 2**63 - 1 < 12 * (given.word_limit + 1)
    assert given.value_limit == pytest.approx(2.0**63 / 12 / 2.0**36)
    assert [default_threshold(users) for users in (1, 2, 3, 4, 12)] == [1, 2, 3, 3, 9]
    for users in range(1, 60):
        Parameters(users, default_threshold(users), 2, 1, 1)


def test_contexts_of_different_things_are_spelled_differently() -> None:
    sessions = [Session(parameters(), run, number) for run, number in product(("", "a", "ab"), (0, 1))]
    sessions += [Session(parameters(length=6), "a", 0), Session(parameters(minimum=3), "a", 0)]
    calls = [
        ("mask", (1, 2)),
        ("mask", (2, 1)),
        ("mask", (12,)),
        ("mask", (1, 2, 0)),
        ("masks", (1, 2)),
        ("bmask", (1, 2)),
    ]
    contexts = [session.context(purpose, *ids) for session in sessions for purpose, ids in calls]
    assert len(set(contexts)) == len(contexts)
    with pytest.raises(ValueError, match="round must be 0 or more"):
        Session(parameters(), "a", -1)
