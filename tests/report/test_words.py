from __future__ import annotations

import math

import pytest

from covey.network import VIOLATION_KINDS
from covey.report.words import VIOLATION_WORDS, count, listed, number, percent, prefix_of, quantity, seconds, whole


def test_every_kind_of_violation_has_words_in_its_order() -> None:
    assert tuple(VIOLATION_WORDS) == VIOLATION_KINDS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (math.nan, "none"),
        (math.inf, "unlimited"),
        (-math.inf, "minus unlimited"),
        (0.0, "0"),
        (0.51749, "0.517"),
        (2.3, "2.30"),
        (12345.6, "12,346"),
        (-7.25, "-7.25"),
        (1e-5, "1.00e-5"),
        (2.5e7, "2.50e7"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


def test_number_with_one_digit_shows_delta_as_people_write_it() -> None:
    assert number(1e-5, 1) == "1e-5"
    assert number(0.01, 1) == "0.01"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 s"), (1.2e-5, "12.0 \N{MICRO SIGN}s"), (0.0123, "12.3 ms"), (17.7, "17.7 s"), (3e-11, "0.0300 ns")],
)
def test_quantity_picks_the_prefix(value: float, text: str) -> None:
    assert quantity(value, "s") == text


def test_quantity_of_infinity_and_nothing() -> None:
    assert quantity(math.inf, "J") == "unlimited"
    assert quantity(None, "J") == "none"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.002, "2.00 ms"), (119.0, "119 s"), (120.0, "2 min 0 s"), (265.4, "4 min 25 s"), (7260.0, "2 h 1 min")],
)
def test_seconds(value: float, text: str) -> None:
    assert seconds(value) == text


def test_percent_whole_count_and_lists() -> None:
    assert percent(0.9666) == "96.7 %"
    assert percent(math.nan) == "none"
    assert whole(1234.0) == "1,234"
    assert [count(n, "user") for n in (0, 1, 2)] == ["no users", "1 user", "2 users"]
    assert count(2, "identity", "identities") == "2 identities"
    assert [listed(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_prefix_of_zero_is_none() -> None:
    assert prefix_of(0.0) == (1.0, "")
    assert prefix_of(-5e3) == (1e3, "k")
