from __future__ import annotations

import numpy as np
import pytest

from covey.association import POLICIES, ExactPolicy, Observation, get_policy, greedy, register_policy, registry
from covey.errors import PolicyError


def test_reference_policies_are_there() -> None:
    assert set(POLICIES) >= {"random", "nearest", "greedy", "local_search", "exact"}
    assert get_policy("greedy") is greedy


def test_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(PolicyError, match=r"'best' is unknown.*greedy, local_search, exact"):
        get_policy("best")


def test_registered_policy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(observation: Observation, rng: np.random.Generator) -> np.ndarray:
        return np.zeros(observation.gains.T.shape, dtype=bool)

    monkeypatch.setattr(registry, "POLICIES", dict(POLICIES))
    register_policy("nobody", nobody)
    assert get_policy("nobody") is nobody
    assert "nobody" not in POLICIES


def test_policies_with_memory_start_fresh() -> None:
    first, second = get_policy("exact"), get_policy("exact")
    assert isinstance(first, ExactPolicy)
    assert isinstance(second, ExactPolicy)
    assert first.record is not second.record
