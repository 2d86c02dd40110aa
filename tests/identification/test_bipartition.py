from __future__ import annotations

import itertools

import numpy as np
import pytest

from covey.identification.bipartition import Bipartition, _join, _split, bipartition
from covey.identification.heard import Heard
from covey.identification.products import debiased_products
from covey.scenario import load_scenario
from covey.simulation import Simulation, simulate

QUICK = load_scenario("paper_digits", ["clustering.rule=bipartition"])


@pytest.mark.parametrize("users", [2, 3, 5, 7])
def test_no_two_parts_have_a_smaller_largest_similarity(users: int) -> None:
    for seed in range(20):
        noise = np.random.default_rng([seed, users]).standard_normal((users, users))
        similarity = noise + noise.T
        found = bipartition(similarity)
        assert 0 < found.sum() < users

        def across(part: np.ndarray, similarity: np.ndarray = similarity) -> float:
            return float(similarity[np.ix_(part, ~part)].max())

        every = (np.array(p, bool) for p in itertools.product([False, True], repeat=users) if 0 < sum(p) < users)
        assert across(found) == min(across(part) for part in every)


def test_pairs_of_which_nothing_is_known_do_not_hold_users_together() -> None:
    similarity = np.full((4, 4), -np.inf)
    similarity[0, 2] = similarity[2, 0] = similarity[1, 3] = similarity[3, 1] = -0.5
    assert bipartition(similarity).tolist() == [False, True, False, True]
    assert bipartition(np.zeros((2, 2))).tolist() == [False, True]


def remembered(steps: np.ndarray, noise: float, longest: float = 0.0) -> dict[str, np.ndarray]:
    products = debiased_products(steps, np.full(len(steps), noise))
    return {
        "cfl_values": products.values,
        "cfl_variance": products.variance,
        "cfl_times": np.ones(products.values.shape, np.int64),
        "cfl_longest": np.array([longest]),
    }


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_task_is_split_when_large_steps_cancel_out_and_only_then(scale: float) -> None:
    everyone = np.arange(6)
    x = scale * np.repeat(np.eye(2, 50), 3, axis=0)
    parts, gain = _split(remembered(x, 0.0), everyone)
    assert parts.tolist() == [False] * 3 + [True] * 3
    assert gain > 0
    # All go the same way, or steps are small beside earlier ones, or noise would hide what they are.
    assert _split(remembered(np.ones((6, 50)) * scale, 0.0), everyone)[0] is None
    assert _split(remembered(x, 0.0, longest=100 * scale**2), everyone)[0] is None
    assert _split(remembered(x, 10.0 * scale), everyone)[0] is None
    assert _split(remembered(x, 0.0), everyone[:1])[0] is None
    assert _split(remembered(x, 0.0), everyone[:3])[0] is None


def test_noise_that_is_taken_off_the_lengths_makes_nobody_look_different() -> None:
    """Without the noise's part the mean of one group's noisy steps looks short, and the group would be split."""
    rng = np.random.default_rng(0)
    split = {True: 0, False: 0}
    for _ in range(50):
        steps = np.full((6, 400), 0.15) + np.sqrt(0.05) * rng.standard_normal((6, 400))
        memory = remembered(steps, np.sqrt(0.05))
        split[True] += _split(memory, np.arange(6))[0] is not None
        memory["cfl_values"] = steps @ steps.T
        split[False] += _split(memory, np.arange(6))[0] is not None
    assert split[True] == 0
    assert split[False] > 40


def test_a_user_heard_after_a_split_joins_the_part_that_goes_its_way() -> None:
    steps = np.array([[1.0, 0.1], [0.9, 0.0], [0.0, 1.0], [0.1, 0.8]], np.float32)
    heard = Heard(np.array([0, 1, 2, 3]), np.array([0, 0, 1, 0]), steps, np.zeros(4))
    identities, undecided = np.array([0, 0, 1, 0, 0]), np.zeros((5, 3), bool)
    undecided[[3, 4], :2] = True
    _join(heard, np.full(5, 10), identities, undecided)
    assert identities.tolist() == [0, 0, 1, 1, 0]
    assert undecided.any(axis=1).tolist() == [False, False, False, False, True]
    # Without anybody to compare with, it waits.
    undecided[:] = True
    _join(heard, np.full(5, 10), identities, undecided)
    assert undecided.all()


def test_a_run_begins_with_one_task_splits_it_and_pays_for_uploads_alone() -> None:
    history = simulate(QUICK, rounds=8, seed=1007)
    tasks = [len(set(row)) for row in history.user_column("identity").tolist()]
    assert tasks[0] == 1
    assert tasks == sorted(tasks)
    assert history.records[-1].clustering_accuracy == 1.0
    assert not history.ledger.spent["identity"].any()
    assert not history.ledger.unprotected.any()


def test_the_offered_model_is_a_copy_and_is_broadcast() -> None:
    with Simulation(QUICK, rounds=3, seed=1007) as simulation:
        assert isinstance(simulation.world.rule, Bipartition)
        simulation.play()
        state = simulation.state
        new = int(state.identities.max())
        assert new > 0
        np.testing.assert_array_equal(state.models[new], state.models[0])
        assert (state.active[:, new] & simulation.world.capable[:, new]).sum() == 1
