"""Arrays that parts get are views of the run's: they can be read, and not written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import covey
from covey.association import get_policy
from covey.data import UserData
from covey.data.over_time import DataOverTime
from covey.errors import CoveyError
from covey.federated import Accepted, Aggregation, Mean
from covey.identification import Rule
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
