"""Server optimisers: against the formulas of FedOpt written out, and what they leave alone."""

from __future__ import annotations

import numpy as np
import pytest

import covey
from covey.errors import ScenarioError
from covey.federated import Mean
from covey.parts import AGGREGATIONS
from covey.scenario import Scenario

K, D = 3, 5


def rounds(number: int = 6) -> list[tuple[np.ndarray, np.ndarray]]:
    """Movements (K, D) and trained tasks (K,) of some rounds; task 2 is never trained."""
    rng = np.random.default_rng(3)
    return [
        (rng.standard_normal((K, D)).astype(np.float32), np.array([True, number % 2 == 0, False]))
        for number in range(number)
    ]


def by_hand(kind: str, rate: float, decay: float, weights: np.ndarray, movements: list[np.ndarray]) -> np.ndarray:
    w, m, v = weights.astype(np.float64), np.zeros(D), np.full(D, 1e-6)
    for step in movements:
        if kind == "mean":
            w = w + rate * step
        elif kind == "momentum":
            m = decay * m + step
            w = w + rate * m
        else:
            m = decay * m + (1 - decay) * step
            v = v - 0.01 * (v - step**2 if kind == "adam" else step**2 * np.sign(v - step**2))
            w = w + rate * m / (np.sqrt(v) + 1e-3)
    return w


@pytest.mark.parametrize(
    ("kind", "extra"), [("mean", {}), *((k, {"server_momentum": 0.7}) for k in ("momentum", "adam", "yogi"))]
)
def test_each_task_moves_as_written_out(kind: str, extra: dict[str, float]) -> None:
    part = Mean(Scenario(training={"server": kind, "server_rate": 0.3, **extra}))
    first = np.random.default_rng(0).standard_normal((K, D)).astype(np.float32)
    models, memory, seen = first, {}, [[] for _ in range(K)]
    for movement, trained in rounds():
        combined = np.where(trained[:, None], models + movement, models)
        before = models
        models, memory = part.advance(models, combined, trained, memory)
        assert models.dtype == np.float32
        np.testing.assert_array_equal(models[~trained], before[~trained])
        for k in np.flatnonzero(trained):
            seen[k].append(combined[k].astype(np.float64) - before[k])
    for k in range(K):
        np.testing.assert_allclose(models[k], by_hand(kind, 0.3, 0.7, first[k], seen[k]), rtol=1e-5, atol=1e-6)


def test_the_mean_at_rate_one_takes_the_models_as_they_are() -> None:
    part, (movement, trained) = Mean(Scenario()), rounds()[0]
    combined = movement + np.float32(1e-8)
    models, memory = part.advance(movement, combined, trained, {})
    assert models is combined
    assert memory == {}


def test_a_replaced_model_begins_without_memory() -> None:
    part = Mean(Scenario(training={"server": "adam"}))
    start = np.zeros((K, D), np.float32)
    _, memory = part.advance(start, start + 1, np.ones(K, dtype=bool), {})
    kept = part.forget(memory, np.array([True, False, False]))
    assert not kept["momentum"][0].any()
    assert (kept["squares"][0] == 1e-6).all()
    for name in memory:
        np.testing.assert_array_equal(kept[name][1:], memory[name][1:])
        assert memory[name][0].all()


@pytest.mark.parametrize("server", ["momentum", "adam", "yogi"])
def test_masks_change_nothing(server: str) -> None:
    options = [f"training.server={server}", "training.server_rate=0.1", "training.steps=3"]
    blind, masked = (
        covey.simulate(covey.load_scenario("quick", [*options, f"security.mode={mode}"]), rounds=3, seed=1).models
        for mode in ("blind", "masked")
    )
    assert blind.tobytes() == masked.tobytes()


class Drifts(Mean):
    def advance(self, before, combined, trained, memory):
        return combined + np.float32(1), memory


class Forgets(Mean):
    def advance(self, before, combined, trained, memory):
        return combined


class Objects(Mean):
    def advance(self, before, combined, trained, memory):
        return combined, {"mine": np.array([{}])}


@pytest.mark.parametrize(
    ("part", "words"),
    [(Drifts, "keeps its model bit for bit"), (Forgets, "no pair"), (Objects, "cannot be saved with the run")],
)
def test_what_a_part_makes_of_the_models_is_checked(monkeypatch: pytest.MonkeyPatch, part: type, words: str) -> None:
    monkeypatch.setattr(AGGREGATIONS, "_registered", {"own": part})
    scenario = covey.load_scenario("quick", ["training.aggregation=own", "network.blocks=1", "network.stations=2"])
    with pytest.raises(ScenarioError, match=words) as refused:
        covey.simulate(scenario, rounds=1, seed=1)
    assert "\n" not in str(refused.value)
