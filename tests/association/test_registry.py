from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from covey.association import (
    ExactPolicy,
    get_policy,
    greedy,
    quick_policies,
    quick_up_to,
    register_policy,
)
from covey.errors import PolicyError
from covey.network import Observation
from covey.parts import POLICIES
from covey.simulation import simulate

OWN = """
class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self, observation, rng):
        self.calls += 1
        return observation.eligible & (self.calls > 1)


class Needy:
    def __init__(self, argument):
        pass


used_before = Counting()
used_before.calls = 7
number = 3
"""


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICIES, "_registered", {})


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the current folder, which is not on Python's path."""
    (tmp_path / "own_policies.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_policies", raising=False)
    return "own_policies"


def nobody(observation: Observation, rng: np.random.Generator) -> np.ndarray:
    return np.zeros(observation.gains.T.shape, dtype=bool)


def test_reference_policies_are_there() -> None:
    assert set(POLICIES.names) >= {"random", "nearest", "greedy", "local_search", "exact"}
    assert get_policy("greedy") is greedy


def test_an_unknown_policy_gets_the_known_ones_and_a_suggestion() -> None:
    with pytest.raises(PolicyError, match=r"'gredy' is unknown.*greedy, local_search, exact.*did you mean 'greedy'"):
        get_policy("gredy")
    with pytest.raises(PolicyError, match=r"'zzz' is unknown.*module:attribute"):
        get_policy("zzz")


def test_a_trained_policy_is_got_elsewhere() -> None:
    with pytest.raises(PolicyError, match=r"covey.learned_policy\('dpvd', scenario\)"):
        get_policy("dpvd")


def test_registered_policy_is_found() -> None:
    register_policy("nobody", nobody)
    assert get_policy("nobody") is nobody
    assert "nobody" in quick_policies()


@pytest.mark.parametrize("name", ["", "greedy", "a:b"])
def test_some_names_cannot_be_registered(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be registered"):
        register_policy(name, nobody)


def test_policies_with_memory_start_fresh(own: str) -> None:
    first, second = get_policy("exact"), get_policy("exact")
    assert isinstance(first, ExactPolicy)
    assert isinstance(second, ExactPolicy)
    assert first.record is not second.record
    for name, calls in (("Counting", 0), ("used_before", 7)):
        one, other = get_policy(f"{own}:{name}"), get_policy(f"{own}:{name}")
        assert one is not other
        assert one.calls == other.calls == calls


def test_a_policy_of_ones_own_plays_and_starts_fresh_in_every_run(own: str) -> None:
    first, second = (simulate("quick", policy=f"{own}:Counting", rounds=2, seed=3) for _ in range(2))
    assert first.policy == f"{own}:Counting"
    assert first.column("served")[0] == 0
    assert first.column("served")[1] > 0
    assert first.column("served").tolist() == second.column("served").tolist()


@pytest.mark.parametrize(
    ("attribute", "why"),
    [("missing", "cannot be imported"), ("number", "cannot be called"), ("Needy", "cannot be called with 0 arguments")],
)
def test_what_is_no_policy_is_refused_in_one_sentence(own: str, attribute: str, why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        get_policy(f"{own}:{attribute}")


def test_a_module_that_fails_is_named(own: str, tmp_path: Path) -> None:
    (tmp_path / "broken_policies.py").write_text("raise RuntimeError('not today')")
    with pytest.raises(PolicyError, match=r"broken_policies:any.*RuntimeError: not today"):
        get_policy("broken_policies:any")
    with pytest.raises(PolicyError, match="ModuleNotFoundError"):
        get_policy("nowhere_at_all:any")


def test_slow_policies_say_so() -> None:
    assert quick_up_to(get_policy("exact")) == 16
    assert quick_up_to(get_policy("greedy")) is None
    assert "exact" in quick_policies(16)
    assert "exact" not in quick_policies(17)
    assert "exact" not in quick_policies()
