"""Processes of this machine as a pool: all that is asked for is computed, errors arrive, lost processes are said."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from covey.errors import CoveyError, ScenarioError
from covey.pools import Pool, open_pool, results


def one_after_another(pieces: list[Any]) -> Callable[[], Any]:
    left = iter(pieces)
    return lambda: next(left, None)


def power(base: int) -> int:
    return base**2


def fail(sentence: str) -> None:
    raise ScenarioError(sentence)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_everything_is_computed_and_named() -> None:
    with open_pool(2) as pool:
        found = dict(results(pool, one_after_another([(n, power, (n,)) for n in range(7)])))
    assert found == {n: n**2 for n in range(7)}


def test_no_more_is_begun_than_can_be_computed_at_once_and_results_decide_what_comes_next() -> None:
    begun, finished = [], []

    def more() -> Any:
        if len(begun) - len(finished) >= 1 or len(begun) == 3:
            return None
        begun.append(2 if not finished else finished[-1])
        return len(begun), power, (begun[-1],)

    with open_pool(2) as pool:
        for _, value in results(pool, more):
            finished.append(value)
    assert finished == [4, 16, 256]


def test_an_error_reaches_the_caller() -> None:
    with pytest.raises(ScenarioError, match="no such thing"), open_pool(1) as pool:
        list(results(pool, one_after_another([("bad", fail, ("no such thing",))])))


def test_a_process_that_dies_is_one_sentence() -> None:
    def ask(pool: Pool) -> None:
        list(results(pool, one_after_another([("bad", die, ()), ("next", power, (2,))])))

    with pytest.raises(CoveyError, match=r"ended before its time.*give the same command again"), open_pool(1) as pool:
        ask(pool)


def test_without_ray_the_option_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ScenarioError, match=r"install covey\[ray\]"), open_pool(1, "local"):
        pass
