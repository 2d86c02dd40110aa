from __future__ import annotations

import numpy as np
import pytest

from covey.federated import REASONS, Upload, admit, reach

LENGTH = 6
STARTS = np.stack([np.zeros(LENGTH), np.ones(LENGTH)]).astype(np.float32)
USERS, START, REACH = np.array([3, 5, 8]), np.array([0, 1, 1]), np.full(3, 2.0)


def good(user: int, round: int = 7) -> Upload:
    return Upload(user, round, STARTS[START[USERS.tolist().index(user)]] + np.float32(0.1))


def check(*arrived: Upload) -> tuple[list[bool], dict[str, list[int]]]:
    found = admit(arrived, 7, USERS, STARTS, START, REACH)
    for row, accepted in enumerate(found.accepted):
        assert accepted or not found.weights[row].any()
    assert found.rejected == sum(map(len, found.reasons.values()))
    return found.accepted.tolist(), found.reasons


def test_good_uploads_pass_in_any_order() -> None:
    accepted, reasons = check(good(8), good(3), good(5))
    assert (accepted, reasons) == ([True] * 3, {})
    found = admit([good(8), good(3)], 7, USERS, STARTS, START, REACH)
    np.testing.assert_array_equal(found.weights[2], good(8).weights)


BAD = {
    "unexpected": Upload(4, 7, STARTS[0]),
    "stale": good(5, round=6),
    "oversized": Upload(5, 7, np.ones(3 * LENGTH, dtype=np.float32)),
    "wrong_type": Upload(5, 7, STARTS[1].astype(np.float64)),
    "wrong_shape": Upload(5, 7, STARTS[1][:-1]),
    "not_finite": Upload(5, 7, np.where(np.arange(LENGTH) == 2, np.nan, STARTS[1]).astype(np.float32)),
    "too_far": Upload(5, 7, STARTS[1] + np.float32(1.0)),
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_uploads_are_named_and_touch_nobody_else(reason: str) -> None:
    accepted, reasons = check(good(3), BAD[reason], good(8))
    assert accepted == [True, False, True]
    assert reasons == {reason: [-1 if reason == "unexpected" else 5]}


def test_the_first_good_upload_counts_and_the_second_is_a_duplicate() -> None:
    changed = Upload(3, 7, STARTS[0] - np.float32(0.2))
    found = admit([good(3), changed], 7, USERS, STARTS, START, REACH)
    np.testing.assert_array_equal(found.weights[0], good(3).weights)
    assert found.reasons == {"duplicate": [3]}
    # A bad one before does not take the place of a good one.
    assert check(BAD["too_far"], good(5))[0] == [False, True, False]


def test_every_reason_is_covered() -> None:
    assert set(BAD) | {"duplicate"} == set(REASONS)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 3e38])
def test_infinite_and_huge_numbers_do_not_get_through(value: float) -> None:
    accepted, reasons = check(Upload(3, 7, np.full(LENGTH, value, dtype=np.float32)))
    assert accepted == [False] * 3
    assert set(reasons) <= {"not_finite", "too_far"}


def test_honest_steps_stay_within_reach_and_much_larger_ones_do_not() -> None:
    rng = np.random.default_rng(0)
    clip, samples, std, rate, length = np.array([2.0]), np.array([50]), np.array([3.0]), 0.5, 400
    limit = reach(clip, samples, std, rate, length)[0]
    worst = np.zeros(length)
    worst[0] = 50 * 2.0  # all clipped gradients in one direction
    steps = [np.linalg.norm(rate / 50 * (worst + 3.0 * rng.standard_normal(length))) for _ in range(2000)]
    assert max(steps) < limit
    assert limit < 3 * np.mean(steps)
    assert reach(clip, samples, 0 * std, rate, length)[0] == pytest.approx(rate * 2.0, rel=0.01)
