from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.parts import MOBILITIES
from covey.radio import RandomWalk, RandomWaypoint, Static, build_mobility, moves_in_arrays, register_mobility
from covey.scenario.schema import Mobility

AREA = (500.0, 200.0)


def positions(users: int = 50, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, AREA, (users, 2))


@given(
    model=st.sampled_from(["random_walk", "random_waypoint", "static"]),
    speed=st.floats(0, 1e12),
    duration=st.floats(1e-3, 1e6),
    seed=st.integers(0, 2**32),
)
def test_users_never_leave_the_area(model: str, speed: float, duration: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mobility = build_mobility(Mobility(model=model, speed_m_s=speed), AREA)
    where = np.vstack([positions(8, seed), [[0, 0], AREA]])
    memory = mobility.start(where, rng)
    for _ in range(3):
        where, memory = mobility.move(where, memory, duration, rng)
        assert where.shape == (10, 2)
        assert np.all(np.isfinite(where))
        assert np.all((where >= 0) & (where <= AREA))


def test_static_users_stay() -> None:
    where, _ = Static().move(positions(), Static().start(positions(), np.random.default_rng(0)), 10.0, None)  # type: ignore[arg-type]
    np.testing.assert_array_equal(where, positions())


def test_random_walk_steps_have_the_right_length_and_all_directions() -> None:
    start = np.full((2000, 2), 100.0)
    walk = RandomWalk(1.4, (1000.0, 1000.0))
    where, _ = walk.move(start, walk.start(start, np.random.default_rng(1)), 10.0, np.random.default_rng(1))
    step_m = where - start
    np.testing.assert_allclose(np.linalg.norm(step_m, axis=1), 14.0)
    assert np.abs(step_m.mean(axis=0)).max() < 4 * 14 / np.sqrt(2 * 2000)


def test_random_walk_is_reflected_at_the_border() -> None:
    walk = RandomWalk(3.0, (100.0, 100.0))
    start = np.array([[1.0, 50.0]])
    for seed in range(20):
        heading = np.random.default_rng(seed).uniform(0, 2 * np.pi)
        where, _ = walk.move(start, np.empty((1, 0)), 1.0, np.random.default_rng(seed))
        assert where[0, 0] == pytest.approx(abs(1.0 + 3.0 * np.cos(heading)))


def test_waypoint_users_approach_their_target_and_then_choose_another() -> None:
    way = RandomWaypoint(10.0, AREA)
    rng = np.random.default_rng(2)
    where = positions()
    target = way.start(where, rng)
    before = np.linalg.norm(target - where, axis=1)
    moved, new_target = way.move(where, target, 5.0, rng)
    near = before <= 50.0
    assert near.any()
    assert (~near).any()
    np.testing.assert_allclose(moved[near], target[near])
    np.testing.assert_allclose(np.linalg.norm(moved - where, axis=1)[~near], 50.0)
    np.testing.assert_allclose(np.linalg.norm(target - moved, axis=1)[~near], before[~near] - 50.0)
    np.testing.assert_array_equal(new_target[~near], target[~near])
    assert np.all(new_target[near] != target[near])


@pytest.mark.parametrize("model", ["random_walk", "random_waypoint"])
def test_moves_are_pure_and_repeatable(model: str) -> None:
    mobility = build_mobility(Mobility(model=model), AREA)
    start = positions()
    memory = mobility.start(start, np.random.default_rng(0))
    kept = start.copy(), memory.copy()
    once = mobility.move(start, memory, 10.0, np.random.default_rng(5))
    again = mobility.move(start, memory, 10.0, np.random.default_rng(5))
    np.testing.assert_array_equal(once[0], again[0])
    np.testing.assert_array_equal(once[1], again[1])
    np.testing.assert_array_equal(start, kept[0])
    np.testing.assert_array_equal(memory, kept[1])


def test_speed_zero_stays() -> None:
    for model in ("random_walk", "random_waypoint"):
        mobility = build_mobility(Mobility(model=model, speed_m_s=0.0), AREA)
        memory = mobility.start(positions(), np.random.default_rng(0))
        where, _ = mobility.move(positions(), memory, 10.0, np.random.default_rng(0))
        np.testing.assert_allclose(where, positions())


def test_unknown_model_names_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOBILITIES, "_registered", {})
    with pytest.raises(ValueError, match="random_walk, random_waypoint, static"):
        Mobility(model="teleport")
    register_mobility("teleport", lambda mobility, area_m: Static())
    assert isinstance(build_mobility(Mobility(model="teleport"), AREA), Static)


@pytest.mark.parametrize("model", ["random_walk", "random_waypoint", "static"])
def test_networks_move_together_as_each_would_alone(model: str) -> None:
    mobility = build_mobility(Mobility(model=model, speed_m_s=30.0), AREA)
    assert moves_in_arrays(mobility)
    where = np.stack([positions(9, seed) for seed in range(5)])
    where[0, 0] = AREA
    memory = np.stack([mobility.start(one, np.random.default_rng(seed)) for seed, one in enumerate(where)])
    drawn = np.stack([mobility.draw(9, np.random.default_rng([7, seed])) for seed in range(5)])
    together = mobility.moved(where, memory, drawn, 10.0)
    alone = [mobility.move(where[seed], memory[seed], 10.0, np.random.default_rng([7, seed])) for seed in range(5)]
    for index in range(2):
        np.testing.assert_array_equal(together[index], np.stack([one[index] for one in alone]))


def test_models_with_a_move_of_their_own_do_not_move_in_arrays() -> None:
    class Pause(RandomWalk):
        def move(self, positions_m, memory, duration_s, rng):  # type: ignore[no-untyped-def]
            return positions_m, memory

    class Shuttle:
        def start(self, positions_m: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            return np.empty((len(positions_m), 0))

        def move(self, positions_m, memory, duration_s, rng):  # type: ignore[no-untyped-def]
            return positions_m, memory

    assert not moves_in_arrays(Pause(1.0, AREA))
    assert not moves_in_arrays(Shuttle())
