"""Arrays that parts get are views of the run's: they can be read, and not written."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

import covey
from covey.association import get_policy
from covey.data import UserData
from covey.data.over_time import DataOverTime
from covey.errors import CoveyError
from covey.federated import Accepted, Aggregation, Intake, Mean
from covey.identification import Rule
from covey.identification.loss import Loss
from covey.parts import AGGREGATIONS, DATA_OVER_TIME, RULES


class Shifted(DataOverTime):
    """Writes into the arrays of the first round."""

    def at(self, round: int, first: UserData) -> UserData:
        first.x[:] = first.x + 1
        return first


class Copied(DataOverTime):
    def at(self, round: int, first: UserData) -> UserData:
        return replace(first, x=first.x + np.float32(0.01 * round))


class InPlace(Aggregation):
    def combine(self, accepted: Accepted):
        accepted.models[:] = Mean(self.scenario).combine(accepted)
        return accepted.models


class Zeroed(Mean):
    """Writes into what rules and starts are given after it."""

    needs: ClassVar[frozenset[str]] = frozenset({"single_uploads"})
    field: ClassVar[str] = "uploads"

    def combine(self, accepted: Accepted):
        models = super().combine(accepted)
        getattr(accepted, self.field)[:] = 0
        return models


class Forgetful(Loss):
    """Writes into what the record of the round is made from."""

    field: ClassVar[str] = "totals"

    def after_round(self, at, found, trained):
        holder = trained.intake if self.field in ("weights", "accepted") else trained
        getattr(holder, self.field)[:] = 0
        return super().after_round(at, found, trained)


class Overwriting(Rule):
    def find(self, at):
        at.identities[:] = 0
        return at.kept()


class Moving:
    def start(self, positions_m, rng):
        return np.zeros((len(positions_m), 0))

    def move(self, positions_m, memory, duration_s, rng):
        positions_m += 1
        return positions_m, memory


class Levelled:
    def gains(self, users_m, stations_m, round):
        stations_m[:] = 0.0
        return np.full((len(users_m), len(stations_m)), 1e-9)


@pytest.mark.parametrize(
    ("registry", "key", "part"),
    [
        (DATA_OVER_TIME, "data.over_time", Shifted),
        (AGGREGATIONS, "training.aggregation", InPlace),
        (RULES, "clustering.rule", Overwriting),
    ],
)
def test_a_part_that_writes_is_told_so(monkeypatch: pytest.MonkeyPatch, registry, key: str, part: type) -> None:
    monkeypatch.setattr(registry, "_registered", {"own": part})
    with pytest.raises(CoveyError, match="read-only") as refused:
        covey.simulate(covey.load_scenario("quick", [f"{key}=own"]), rounds=2)
    assert f'{key} = "own"' in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("field", ["uploads", "task", "station", "samples", "models"])
def test_an_aggregation_that_writes_into_uploads_is_told_so(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    monkeypatch.setattr(Zeroed, "field", field)
    test_a_part_that_writes_is_told_so(monkeypatch, AGGREGATIONS, "training.aggregation", Zeroed)


@pytest.mark.parametrize("field", ["totals", "joined", "noise_std", "movements", "weights", "accepted"])
def test_a_rule_that_writes_into_what_a_round_left_is_told_so(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    monkeypatch.setattr(Forgetful, "field", field)
    test_a_part_that_writes_is_told_so(monkeypatch, RULES, "clustering.rule", Forgetful)


def test_uploads_are_handed_on_without_a_copy() -> None:
    weights = np.zeros((2, 3), np.float32)
    intake = Intake(np.arange(2), weights, np.ones(2, bool), {})
    accepted = Accepted(intake.weights, np.zeros(2, int), np.zeros(2, int), np.ones(2, int), weights, 1)
    assert np.shares_memory(accepted.uploads, weights)
    assert weights.flags.writeable
    assert not accepted.uploads.flags.writeable


@pytest.mark.parametrize(("argument", "part"), [("mobility", Moving()), ("channel", Levelled())])
def test_an_object_that_writes_is_told_so(argument: str, part: object) -> None:
    with pytest.raises(CoveyError, match=f"{type(part).__name__}.*read-only"):
        covey.simulate("quick", rounds=1, **{argument: part})


@pytest.mark.parametrize("field", ["samples", "identities", "gains", "distances_m", "available", "kept", "capable"])
def test_a_policy_that_writes_is_told_so(field: str) -> None:
    def writes(observation, rng):
        getattr(observation, field)[:] = 1
        return get_policy("greedy")(observation, rng)

    with pytest.raises(CoveyError, match=r"policy.*writes.*read-only"):
        covey.simulate("quick", policy=writes, rounds=1)


def test_drifting_data_are_the_same_with_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATA_OVER_TIME, "_registered", {"own": Copied})
    scenario = covey.load_scenario("quick", ["data.over_time=own"])
    alone, pair = (covey.simulate(scenario, rounds=2, workers=workers) for workers in (1, 2))
    assert alone.models.tobytes() == pair.models.tobytes()


def test_arrays_of_whoever_gives_them_stay_writable() -> None:
    data = UserData.from_users(
        [(np.random.default_rng(user).normal(size=(60, 4)), np.arange(60) % 2) for user in range(12)],
        test=[(np.zeros((4, 4)), np.arange(4) % 2) for _ in range(12)],
        groups=np.arange(12) % 4,
    )
    covey.simulate("quick", data=data, rounds=1)
    data.x[0] = 1.0
    assert data.groups.flags.writeable
