"""Identities: equal for what does the same, other for what does not, never repeated for what cannot be seen."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from covey.association import get_policy
from covey.jobs import identity, scenario_digest
from covey.parts import POLICIES
from covey.scenario import PAPER_START, load_scenario

LIMIT = 3


def limited(x: int) -> int:
    return x + LIMIT


class Chooser:
    """A policy with settings."""

    def __init__(self, threshold: Any) -> None:
        self.threshold = threshold

    def __call__(self, observation: Any, rng: Any) -> Any:
        return limited(self.threshold)


Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """A module `mine` with this source, imported anew as another command would."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(source: str, name: str = "mine") -> ModuleType:
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        for loaded in ("mine", "helper"):
            sys.modules.pop(loaded, None)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write  # type: ignore[misc]
    for loaded in ("mine", "helper"):
        sys.modules.pop(loaded, None)


def test_the_body_of_a_function_counts_and_its_comments_do_not(load: Load) -> None:
    first = identity(load("def policy(o, r):\n    return o + 1\n").policy)
    assert identity(load("# A remark.\n\ndef policy(o, r):\n    return o + 1  # why\n").policy) == first
    assert identity(load("def policy(o, r):\n    return o + 2\n").policy) != first
    assert identity(load("def policy(o, r=1):\n    return o + 1\n").policy) != first


def test_constants_and_functions_that_it_uses_count_in_its_own_module_and_in_others(load: Load) -> None:
    source = "import helper\nfrom helper import g\nN = {n}\ndef f(x):\n    return x * {k}\ndef policy(o, r):\n"
    body = "    return f(o) + N + {use}\n"
    found = set()
    for n, k, m, use in ((1, 2, 3, "g(o)"), (5, 2, 3, "g(o)"), (1, 6, 3, "g(o)"), (1, 2, 7, "g(o)"),
                         (1, 2, 3, "helper.g(o)"), (1, 2, 7, "helper.g(o)")):  # fmt: skip
        load(f"def g(x):\n    return x - {m}\n", "helper")
        (Path(str(sys.modules["helper"].__file__)).parent / "mine.py").write_text(
            source.format(n=n, k=k) + body.format(use=use), encoding="utf-8"
        )
        found.add(identity(importlib.import_module("mine").policy))
        sys.modules.pop("mine")
    assert len(found) == 6


def test_what_a_function_closes_over_counts() -> None:
    def make(threshold: Any) -> Callable[[Any], Any]:
        return lambda observation: observation > threshold

    assert identity(make(1)) == identity(make(1))
    assert identity(make(1)) != identity(make(2))
    assert identity(make(np.arange(3))) != identity(make(np.arange(1, 4)))
    assert identity(functools.partial(limited, 1)) != identity(functools.partial(limited, 2))


def test_an_object_is_its_class_and_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    assert identity(Chooser(1)) == identity(Chooser(1)) != identity(Chooser(2))
    weights = torch.arange(4.0)
    assert identity(Chooser(weights)) == identity(Chooser(weights.clone())) != identity(Chooser(weights + 1))
    assert identity(Chooser({"a", "b", "c"})) == identity(Chooser({"c", "b", "a"}))
    before = identity(Chooser(1))
    monkeypatch.setattr(f"{__name__}.LIMIT", 4)
    assert identity(Chooser(1)) != before, "a global that a function of a method uses"


def test_state_that_cannot_be_pickled_is_never_found_again() -> None:
    policy = Chooser(threading.Lock())
    assert identity(policy).startswith("unseen-")
    assert identity(policy) != identity(policy)


def test_things_that_refer_to_themselves_come_to_an_end() -> None:
    policy = Chooser(None)
    policy.threshold = [policy]
    assert identity(policy) == identity(policy)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert identity(deep).startswith("unseen-")


def test_references_differ_and_are_the_same_in_every_process() -> None:
    found = {name: identity(get_policy(name)) for name in POLICIES.builtin}
    assert len(set(found.values())) == len(found)
    code = "import covey.association as a, covey.jobs as j\nprint(j.identity(a.get_policy('greedy')))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert other.stdout.strip() == found["greedy"]


def test_a_scenario_is_what_it_sets() -> None:
    plain = scenario_digest(load_scenario("quick"))
    assert scenario_digest(load_scenario("quick", ["name=other", "clustering.similarity_weight=0.2"])) == plain
    assert scenario_digest(load_scenario("quick", ["network.users=13"])) != plain


@pytest.mark.parametrize(
    ("preset", "papers"),
    [
        ("paper_digits", "807bcf955152bdb5"),
        ("paper", "f4319d4065a0c736"),
        ("paper_femnist", "187c7ea6bae17df4"),
    ],
)
def test_a_changed_default_changes_the_digest_of_the_default_alone(preset: str, papers: str) -> None:
    """Digests as of before `clustering.rescue` was on by default."""
    assert scenario_digest(load_scenario(preset, PAPER_START)) == papers
    rescued = scenario_digest(load_scenario(preset, ["clustering.start=random", "clustering.rescue=true"]))
    released = scenario_digest(load_scenario(preset, ["clustering.start=release", "clustering.rescue=false"]))
    assert len({papers, rescued, released}) == 3
