"""Aggregations of one's own: refused where masks cannot carry them out, and checked where they can be called."""

from __future__ import annotations

from typing import ClassVar

import pytest

import covey
from covey.errors import ScenarioError
from covey.federated import Accepted, Aggregation, Mean
from covey.parts import AGGREGATIONS


class Kept(Aggregation):
    """Needs no single uploads, but is no mean."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def combine(self, accepted: Accepted):
        return accepted.models


class Doubled(Mean):
    """Derives from the mean, and is none."""

    def combine(self, accepted: Accepted):
        return 2 * super().combine(accepted)


class Called(Mean):
    """The mean itself, under another name."""


class Declared(Mean):
    weighted_mean: ClassVar[bool] = True

    def combine(self, accepted: Accepted):
        return super().combine(accepted)


def play(monkeypatch: pytest.MonkeyPatch, part: type, *overrides: str, rounds: int = 1) -> covey.History:
    monkeypatch.setattr(AGGREGATIONS, "_registered", {"own": part})
    scenario = covey.load_scenario("quick", ["training.aggregation=own", *overrides])
    return covey.simulate(scenario, rounds=rounds, seed=1)


@pytest.mark.parametrize("mode", ["masked", "blind"])
@pytest.mark.parametrize("part", [Kept, Doubled])
def test_what_masks_cannot_carry_out_is_refused(monkeypatch: pytest.MonkeyPatch, part: type, mode: str) -> None:
    with pytest.raises(
        ScenarioError, match=r"training.aggregation is 'own', but .*mean weighted by samples"
    ) as refused:
        play(monkeypatch, part, f"security.mode={mode}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("part", [Called, Declared])
def test_a_declared_mean_is_that_of_masks(monkeypatch: pytest.MonkeyPatch, part: type) -> None:
    own = play(monkeypatch, part, "security.mode=masked")
    built_in = covey.simulate(covey.load_scenario("quick", ["security.mode=masked"]), rounds=1, seed=1)
    assert own.models.tobytes() == built_in.models.tobytes()


def test_without_masks_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (play(monkeypatch, Kept).models == play(monkeypatch, Kept, rounds=2).models).all()
