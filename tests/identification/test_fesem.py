from __future__ import annotations

import numpy as np

from covey.identification.fesem import nearest_models
from covey.scenario import load_scenario
from covey.simulation import simulate

QUICK = load_scenario("quick", ["clustering.rule=fesem"])


def test_the_nearest_model_is_that_of_the_distances() -> None:
    rng = np.random.default_rng(0)
    models = rng.standard_normal((5, 30)).astype(np.float32)
    tasks = rng.integers(5, size=200)
    steps = (2 * rng.standard_normal((200, 30))).astype(np.float32)
    uploads = models[tasks].astype(float) - steps
    expected = ((uploads[:, None] - models[None]) ** 2).sum(axis=2).argmin(axis=1)
    found = nearest_models(models, tasks, steps)
    np.testing.assert_array_equal(found, expected)
    assert (found != tasks).any()


def test_noise_makes_nobody_change_on_average() -> None:
    """Its squared length is the same to every model, however unequal it is between users."""
    rng = np.random.default_rng(1)
    models = np.zeros((2, 1000), np.float32)
    models[1, 0] = 1.0
    steps = np.zeros((400, 1000), np.float32)
    steps[:200, 0] = -0.8  # these went beyond the middle between both models, the others nowhere
    steps += (rng.uniform(0.02, 0.08, 400)[:, None] * rng.standard_normal(steps.shape)).astype(np.float32)
    found = nearest_models(models, np.zeros(400, np.int64), steps)
    assert found[:200].all()
    assert not found[200:].any()


def test_equal_models_and_no_uploads_change_nothing() -> None:
    models = np.ones((3, 4), np.float32)
    assert nearest_models(models, np.array([2, 1]), np.ones((2, 4), np.float32)).tolist() == [2, 1]
    assert nearest_models(models, np.zeros(0, np.int64), np.zeros((0, 4), np.float32)).shape == (0,)


def test_a_run_starts_with_one_task_and_groups_the_users_that_were_heard() -> None:
    history = simulate(QUICK, rounds=6, seed=1002)
    assert (history.user_column("identity")[0] == 0).all()
    assert history.records[-1].clustering_accuracy == 1.0
    assert not history.ledger.unprotected.any()
    assert not history.ledger.spent["identity"].any()


def test_single_steps_lead_nobody_to_another_model_once_models_differ() -> None:
    """What the rule's own words warn of: with one step a round, tasks stay as the start made them."""
    identity = simulate(QUICK, rounds=12, seed=1004).user_column("identity")
    np.testing.assert_array_equal(identity[4], identity[11])
