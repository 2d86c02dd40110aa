from __future__ import annotations

import pickle
from collections import Counter
from copy import deepcopy
from dataclasses import fields, replace

import numpy as np
import pytest

from covey.association import get_policy
from covey.environment import Calibration, SurrogateRounds, calibration_for, learning_hash
from covey.errors import ScenarioError
from covey.network import VIOLATION_KINDS
from covey.parts import MOBILITIES
from covey.radio import build_mobility, register_mobility
from covey.scenario import Scenario, load_scenario
from covey.scenario.schema import Mobility
from covey.seeding import generator
from covey.simulation import Simulation, simulate


@pytest.fixture(scope="module")
def quick() -> Scenario:
    return load_scenario("quick")


@pytest.fixture(scope="module")
def calibration(quick: Scenario) -> Calibration:
    return calibration_for(quick)


def refitted(calibration: Calibration, scenario: Scenario) -> Calibration:
    """The same constants, as if they had been fitted to `scenario`."""
    return replace(calibration, hash=learning_hash(scenario))


def test_networks_side_by_side_equal_single_ones(quick: Scenario, calibration: Calibration) -> None:
    seeds = [0, 7, 2**41 + 3]
    together = SurrogateRounds(quick, calibration, len(seeds))
    together.reset(seeds)
    alone = [SurrogateRounds(quick, calibration) for _ in seeds]
    for rounds, seed in zip(alone, seeds, strict=True):
        rounds.reset([seed])
    rng = np.random.default_rng(0)
    while not together.done:
        selected = rng.random((len(seeds), 4, 12)) < 0.2
        outcome = together.step(selected)
        for index, rounds in enumerate(alone):
            single = rounds.step(selected[index : index + 1])
            for field in fields(outcome):
                if field.name != "kinds":
                    np.testing.assert_array_equal(getattr(outcome, field.name)[index], getattr(single, field.name)[0])
            for kind in VIOLATION_KINDS:
                np.testing.assert_array_equal(outcome.kinds[kind][index], single.kinds[kind][0])
            for field in fields(together.observation):
                if field.name not in ("round", "limits"):
                    both = getattr(together.observation, field.name)[index], getattr(rounds.observation, field.name)[0]
                    np.testing.assert_array_equal(*both)
    assert all(rounds.done for rounds in alone)


@pytest.mark.parametrize("seed", [0, 11])
def test_layout_samples_groups_and_walks_are_those_of_a_real_run(
    quick: Scenario, calibration: Calibration, seed: int
) -> None:
    history = simulate(quick, "nearest", seed=seed, rounds=4)
    rounds = SurrogateRounds(quick, calibration)
    view = rounds.reset([seed])
    with Simulation(quick, seed=seed) as simulation:
        world, state = simulation.world, simulation.state
        np.testing.assert_array_equal(view.gains[0], world.channel.gains(state.positions_m, world.stations_m, 0))
        assert rounds.limits.radio == world.limits.radio
    np.testing.assert_array_equal(view.samples[0], history.samples)
    np.testing.assert_array_equal(rounds.groups[0], history.groups)
    np.testing.assert_array_equal(view.identities[0], history.records[0].users.identity)
    np.testing.assert_array_equal(rounds.positions_m[0][0], history.stations_m)
    for record in history.records:
        walked = np.column_stack([record.users.x_m, record.users.y_m])
        np.testing.assert_array_equal(rounds.positions_m[1][0], walked)
        rounds.step(np.zeros((1, 4, 12), dtype=bool))


def test_every_violation_kind_is_reached_and_counted_like_project(quick: Scenario, calibration: Calibration) -> None:
    # Two slots instead of six, so that broadcasts run out.
    scenario = quick.model_copy(update={"radio": quick.radio.model_copy(update={"downlink_rate_bps": 5e6})})
    rounds = SurrogateRounds(scenario, calibration)
    reached: Counter[str] = Counter()
    rng = np.random.default_rng(1)
    for seed in range(3):
        view = rounds.reset([seed])
        while not rounds.done:
            selected = rng.random((1, 4, 12)) < 0.4
            plan = view[0].project(selected[0])
            outcome = rounds.step(selected)
            for kind in VIOLATION_KINDS:
                np.testing.assert_array_equal(outcome.kinds[kind][0], plan.kinds[kind])
                reached[kind] += int(plan.kinds[kind].sum())
            np.testing.assert_array_equal(outcome.violators[0], plan.violators)
            np.testing.assert_array_equal(outcome.station_violations[0], plan.station_violations)
            np.testing.assert_array_equal(outcome.station[0], plan.station)
            np.testing.assert_array_equal(outcome.block[0], plan.block)
            view = rounds.observation
    assert min(reached[kind] for kind in VIOLATION_KINDS) > 0, reached


def test_serving_users_teaches_and_serving_nobody_does_not(quick: Scenario, calibration: Calibration) -> None:
    rounds = SurrogateRounds(quick, calibration)
    greedy, rng = get_policy("greedy"), np.random.default_rng(0)
    view, losses = rounds.reset([0]), []
    while not rounds.done:
        outcome = rounds.step(greedy(view[0], rng)[None])
        losses.append(outcome.loss.mean())
        view = rounds.observation
    assert len(losses) == quick.training.rounds
    assert losses[-1] < 0.7 * losses[0]
    rounds.reset([0])
    outcome = rounds.step(np.zeros((1, 4, 12), dtype=bool))
    np.testing.assert_array_equal(outcome.loss, outcome.loss_before)
    assert not outcome.leakage.any()
    assert not outcome.violators.any()


def test_users_keep_or_change_what_they_announced(quick: Scenario, calibration: Calibration) -> None:
    rounds = SurrogateRounds(quick, calibration)
    view = rounds.reset([0])
    assert not view.kept.any()
    rounds.step(np.zeros((1, 4, 12), dtype=bool))
    np.testing.assert_array_equal(rounds.observation.kept, rounds.observation.identities == view.identities)


def test_other_seeds_give_other_networks(quick: Scenario, calibration: Calibration) -> None:
    rounds = SurrogateRounds(quick, calibration, 2)
    view = rounds.reset([1, 2])
    for values in (*rounds.positions_m, view.samples, rounds.groups, view.identities):
        assert not np.array_equal(values[0], values[1])


def test_oracle_users_announce_their_group(quick: Scenario, calibration: Calibration) -> None:
    scenario = quick.model_copy(update={"clustering": quick.clustering.model_copy(update={"rule": "oracle"})})
    rounds = SurrogateRounds(scenario, refitted(calibration, scenario))
    view = rounds.reset([0])
    np.testing.assert_array_equal(view.identities, rounds.groups)


def test_without_noise_there_is_no_leakage(quick: Scenario, calibration: Calibration) -> None:
    scenario = quick.model_copy(update={"privacy": quick.privacy.model_copy(update={"noise": "off"})})
    rounds = SurrogateRounds(scenario, refitted(calibration, scenario))
    view = rounds.reset([0])
    outcome = rounds.step(get_policy("greedy")(view[0], np.random.default_rng(0))[None])
    assert outcome.served[0] > 0
    assert not outcome.leakage.any()
    assert not outcome.noise_std.any()


def test_a_calibration_of_other_learning_is_refused(quick: Scenario, calibration: Calibration) -> None:
    slow = quick.model_copy(update={"training": quick.training.model_copy(update={"learning_rate": 0.01})})
    with pytest.raises(ScenarioError, match=r"stale: training\.learning_rate differ.*covey calibrate quick"):
        SurrogateRounds(slow, calibration)


def test_wrong_use_is_explained(quick: Scenario, calibration: Calibration) -> None:
    rounds = SurrogateRounds(quick, calibration, 2)
    with pytest.raises(ValueError, match="call reset first"):
        _ = rounds.observation
    with pytest.raises(ValueError, match="call reset first"):
        rounds.step(np.zeros((2, 4, 12), dtype=bool))
    with pytest.raises(ValueError, match="1 seeds for 2 networks"):
        rounds.reset([0])


class Drift:
    """A walk that is not drawn first and uses its generator in other ways too."""

    def start(self, positions_m: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((len(positions_m), 3))

    def move(
        self, positions_m: np.ndarray, memory: np.ndarray, duration_s: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        step_m = rng.spawn(1)[0].normal(0.0, duration_s, positions_m.shape)
        return np.clip(positions_m + step_m, 0.0, 400.0).astype(np.float32), memory + rng.exponential(size=memory.shape)


@pytest.mark.parametrize("model", ["random_walk", "random_waypoint", "static", "drift"])
def test_every_network_walks_as_its_seed_says(
    quick: Scenario, calibration: Calibration, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MOBILITIES, "_registered", {})
    register_mobility("drift", lambda mobility, area_m: Drift())
    scenario = quick.model_copy(update={"mobility": Mobility(model=model, speed_m_s=20.0)})
    seeds = [5, 2**40]
    rounds = SurrogateRounds(scenario, refitted(calibration, scenario), 2)
    rounds.reset(seeds)
    walk = build_mobility(scenario.mobility, scenario.network.area_m)
    where = list(rounds.positions_m[1])
    memory = [walk.start(users_m, generator(seed, "mobility")) for users_m, seed in zip(where, seeds, strict=True)]
    for turn in range(1, 4):
        rounds.step(np.zeros((2, 4, 12), dtype=bool))
        for index, seed in enumerate(seeds):
            rng = generator(seed, "mobility", round=turn)
            where[index], memory[index] = walk.move(where[index], memory[index], scenario.mobility.round_s, rng)
        np.testing.assert_array_equal(rounds.positions_m[1], where)
        assert rounds.positions_m[1].dtype == np.float64


def test_a_copy_goes_on_as_the_original_does(quick: Scenario, calibration: Calibration) -> None:
    rounds = SurrogateRounds(quick, calibration)
    rounds.reset([3])
    selected = np.random.default_rng(0).random((4, 1, 4, 12)) < 0.2
    rounds.step(selected[0])
    copies = [deepcopy(rounds), pickle.loads(pickle.dumps(rounds))]
    outcomes = [[played.step(one).loss for one in selected[1:]] for played in (*copies, rounds)]
    for other in outcomes[:2]:
        np.testing.assert_array_equal(other, outcomes[2])
