"""Aggregations of one's own: refused where masks cannot carry them out, and checked where they can be called."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
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


class Still(Mean):
    """An `advance` that reads none of the server's options."""

    def advance(self, before, combined, trained, memory):
        return combined, {}


class Slower(Mean):
    """An `advance` that reads one of them."""

    options: ClassVar[frozenset[str]] = frozenset({"server_rate"})

    def advance(self, before, combined, trained, memory):
        return before + np.float32(self.scenario.training.server_rate) * (combined - before), {}


class Stiller(Slower):
    def advance(self, before, combined, trained, memory):
        return combined, {}


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


@pytest.mark.parametrize(
    ("part", "override", "key"),
    [
        (Still, "training.server=yogi", "server"),
        (Still, "training.server_rate=0.5", "server_rate"),
        (Slower, "training.server=momentum", "server"),
        (Stiller, "training.server_rate=0.5", "server_rate"),
    ],
)
def test_an_option_that_it_would_ignore_is_refused(
    monkeypatch: pytest.MonkeyPatch, part: type, override: str, key: str
) -> None:
    with pytest.raises(
        ScenarioError, match=rf"^training\.{key} is .*'own', whose `advance` .*default[^\n]*$"
    ) as refused:
        play(monkeypatch, part, override)
    assert f'options = frozenset({{"{key}"}})' in str(refused.value)


def test_an_option_that_it_reads_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    own = play(monkeypatch, Slower, "training.server_rate=0.5")
    assert own.models.tobytes() != play(monkeypatch, Slower).models.tobytes()
    assert play(monkeypatch, Still).models.tobytes() == play(monkeypatch, Called).models.tobytes()
    # Without an `advance` of its own, an aggregation takes all of them.
    served = play(monkeypatch, Called, "training.server=momentum", "training.server_momentum=0.5", rounds=3)
    assert served.models.tobytes() != play(monkeypatch, Called, rounds=3).models.tobytes()


def test_without_masks_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (play(monkeypatch, Kept).models == play(monkeypatch, Kept, rounds=2).models).all()
