from __future__ import annotations

import ast
import itertools
from pathlib import Path

import numpy as np
import pytest

from covey.environment.streams import Streams
from covey.seeding import PURPOSES, generator, number_of

ROOT = Path(__file__).parent.parent
#: What takes a purpose.
CALLS = ("generator", "generators", "batch_of", "_batches", "Steps")
#: Of the purpose `mine`.
PINNED = 3218277698


def test_same_arguments_same_stream_any_difference_another() -> None:
    seen = set()
    for seed, purpose, user, turn in itertools.product((0, 1), ("noise", "fading"), (0, 1), (0, 1)):
        first = generator(seed, purpose, user=user, round=turn).integers(2**62)
        assert first == generator(seed, purpose, user=user, round=turn).integers(2**62)
        seen.add(first)
    assert len(seen) == 16


def test_purposes_have_distinct_numbers() -> None:
    assert len(set(PURPOSES.values())) == len(PURPOSES)


def test_any_other_name_has_a_stream_of_its_own_that_never_changes() -> None:
    numbers = {number_of(name) for name in ("mine", "mine_batch", "Mine", "", "café")}
    assert len(numbers | set(PURPOSES.values())) == 5 + len(PURPOSES)
    assert all(2**31 <= number < 2**32 for number in numbers)
    # Also in other processes and versions, in which Python's own hash differs.
    assert number_of("mine") == PINNED
    first, again = (generator(0, "mine", user=1, round=2).integers(2**62) for _ in range(2))
    assert first == again == Streams([0]).generators("mine", user=1, round=2)[0].integers(2**62)


def test_covey_itself_draws_for_known_purposes_only() -> None:
    """A misspelt one would silently be a stream of its own."""
    named = set()
    for path in (ROOT / "src" / "covey").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in CALLS:
                given = [*node.args, *(word.value for word in node.keywords if word.arg == "purpose")]
                named |= {one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    assert {"mobility", "kmeans_noise", "identify_batch"} <= named <= set(PURPOSES)


def test_known_value_pins_the_stream() -> None:
    # Old seeds must keep their meaning: a changed value here changes every published run.
    assert generator(0, "noise", user=3, round=7).standard_normal() == pytest.approx(
        np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence([0, 12, 3, 7]))).standard_normal()
    )
