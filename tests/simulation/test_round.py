"""The round as the documentation tells it, and its halves against the whole."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from covey.association import get_policy
from covey.simulation import Simulation
from covey.simulation import round as round_
from covey.simulation.round import begin_round, decide, finish_round, play_round

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts.md"
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def steps_of(function: object) -> list[str]:
    """Functions of the round's own module, and `account`, that a function calls, in the order of the text."""
    tree = ast.parse(inspect.getsource(function))  # type: ignore[arg-type]
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    names = [node.func.id for node in sorted(called, key=lambda node: (node.lineno, node.col_offset))]  # type: ignore[attr-defined]
    return [name for name in names if inspect.isfunction(getattr(round_, name, None))]


@pytest.mark.parametrize("function", [begin_round, finish_round])
def test_the_page_counts_and_names_the_calls_that_are_there(function: object) -> None:
    name, steps = function.__name__, steps_of(function)  # type: ignore[attr-defined]
    page = CONCEPTS.read_text(encoding="utf-8")
    found = re.search(rf"`{name}` makes (\w+) calls:\n\n(.*?)\n\n", page, re.S)
    assert found is not None
    assert found[1] == NUMBERS[len(steps)]
    assert re.findall(r"^\d\. `(\w+)`", found[2], re.M) == steps


def test_the_whole_round_is_its_halves_and_a_decision() -> None:
    assert steps_of(play_round) == ["begin_round", "decide", "finish_round"]
    policy = get_policy("random")
    with Simulation("quick", policy, seed=3) as simulation:
        world, start = simulation.world, simulation.state
        state, record = play_round(world, start, policy)
        turn = begin_round(world, start)
        finished = finish_round(world, turn, decide(world, turn, policy))
        assert finished.state.models.tobytes() == state.models.tobytes()
        assert finished.record.scalars() == record.scalars()
        # A state is not changed by what is played from it, so that a round can be repeated.
        again, _ = play_round(world, start, policy)
        assert again.models.tobytes() == state.models.tobytes()
        assert again.ledger.to_dict() == state.ledger.to_dict()
        assert start.round == 0
        assert not start.ledger.rho.any()


def test_users_that_sit_out_are_not_served_whatever_is_selected() -> None:
    with Simulation("quick", seed=3) as simulation:
        simulation.state = replace(simulation.state, exhausted=np.arange(12) < 6)
        turn = begin_round(simulation.world, simulation.state)
        finished = finish_round(simulation.world, turn, np.ones((4, 12), dtype=bool))
        assert finished.record.users.station[:6].tolist() == [-1] * 6
