"""Devices toss a coin between models that are equal, and only between those."""

from __future__ import annotations

import numpy as np
import pytest
from tests.federated.users import Noise, draw_users

from covey.federated import build_model, initial_weights
from covey.federated.training import LocalTraining
from covey.federated.user_compute import UserCompute
from covey.parts import LOCAL_TRAININGS
from covey.scenario import load_scenario
from covey.scenario.schema import Model
from covey.simulation import simulate

SHAPE, CLASSES, TASKS = (1, 4, 4), 5, 5
USERS = list(range(400))


def compute_of(models: np.ndarray, seed: int = 1, samples: list[int] | None = None) -> UserCompute:
    module = build_model(Model(name="softmax"), SHAPE, CLASSES)
    users = draw_users([3, 4], SHAPE, CLASSES)
    training: LocalTraining = LOCAL_TRAININGS.build("step", load_scenario("quick"))
    arrays = {name: getattr(users, name) for name in ("x", "y", "offsets", "test_x", "test_y", "test_offsets")}
    arrays |= {"models": models, "movements": np.zeros_like(models), "base": models[0].copy()}
    arrays |= {} if samples is None else {"samples": np.array(samples)}
    return UserCompute(module, arrays, seed, Noise(), training)


def test_a_user_divides_by_what_it_declares_and_else_by_what_it_holds(models: np.ndarray) -> None:
    work = compute_of(models)
    assert [work.samples_of(user) for user in (0, 1)] == [3, 4]
    assert [compute_of(models, samples=[3, 5]).samples_of(user) for user in (0, 1)] == [3, 5]


@pytest.fixture
def models() -> np.ndarray:
    return initial_weights(build_model(Model(name="softmax"), SHAPE, CLASSES), TASKS, seed=0)


def test_different_models_leave_tasks_as_they_are(models: np.ndarray) -> None:
    told = np.array(USERS) % TASKS
    np.testing.assert_array_equal(compute_of(models).toss(USERS, 3, told), told)


def test_of_two_equal_models_each_is_chosen_by_about_half(models: np.ndarray) -> None:
    models[3] = models[1]
    told = np.array(USERS) % TASKS
    before = told.copy()
    tossed = compute_of(models).toss(USERS, 3, told)
    np.testing.assert_array_equal(told, before)
    either = np.isin(told, (1, 3))
    np.testing.assert_array_equal(tossed[~either], told[~either])
    for task in (1, 3):
        mine = tossed[told == task]
        assert set(mine.tolist()) == {1, 3}
        # Five standard deviations of 80 tosses.
        assert abs((mine == 1).mean() - 0.5) < 5 * 0.5 / np.sqrt(80)


def test_of_several_equal_models_each_is_chosen(models: np.ndarray) -> None:
    models[1:] = models[0]
    tossed = compute_of(models).toss(USERS, 0, np.zeros(len(USERS), np.int64))
    shares = np.bincount(tossed, minlength=TASKS) / len(USERS)
    assert np.abs(shares - 0.2).max() < 5 * np.sqrt(0.16 / len(USERS))


def test_a_toss_depends_on_seed_round_and_user_alone(models: np.ndarray) -> None:
    models[4] = models[0]
    told = np.zeros(len(USERS), np.int64)
    compute = compute_of(models)
    whole = compute.toss(USERS, 2, told)
    np.testing.assert_array_equal(whole, compute_of(models).toss(USERS, 2, told))
    # Whoever else is asked, and in which order.
    np.testing.assert_array_equal(compute.toss(USERS[::-1], 2, told)[::-1], whole)
    np.testing.assert_array_equal(compute.toss([7, 300], 2, told[:2]), whole[[7, 300]])
    assert (compute.toss(USERS, 3, told) != whole).any()
    assert (compute_of(models, seed=2).toss(USERS, 2, told) != whole).any()


def test_models_that_differ_in_one_late_weight_are_not_equal(models: np.ndarray) -> None:
    assert models.shape[1] > 65
    models[3] = models[1]
    models[3, -1] += np.float32(1e-6)
    told = np.array(USERS) % TASKS
    np.testing.assert_array_equal(compute_of(models).toss(USERS, 3, told), told)


def test_no_answer_stays_none_and_nobody_is_no_problem(models: np.ndarray) -> None:
    models[:] = models[0]
    compute = compute_of(models)
    assert compute.toss([0, 1], 0, np.array([-1, -1])).tolist() == [-1, -1]
    assert compute.toss([], 0, np.zeros(0, np.int64)).shape == (0,)


@pytest.mark.parametrize("mode", ["blind", "masked"])
def test_users_of_a_model_that_was_copied_are_on_both_in_the_next_round(mode: str) -> None:
    """The coin is tossed in a run, not only in a function: without it all would take the lower number."""
    history = simulate(
        load_scenario("quick", [f"security.mode={mode}", "clustering.rescue=true", "training.rounds=8"]), seed=1002
    )
    offered = history.records[3]
    assert offered.offered_reason == 3
    after = history.records[4].task_users
    assert after[offered.offered_task] > 0
    assert after[offered.offered_source] > 0
