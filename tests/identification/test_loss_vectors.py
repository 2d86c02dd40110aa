from __future__ import annotations

from itertools import permutations, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.errors import ScenarioError
from covey.identification import build_rule
from covey.identification.loss_vectors import reliability, remembered, vector_identities
from covey.scenario import load_scenario


def plainly(vectors: np.ndarray, weight: np.ndarray) -> list[int]:
    """Tasks by the best of all partitions into at most K parts, and the best of all matchings."""
    users, tasks = vectors.shape
    best, parts = np.inf, None
    for labels in product(range(tasks), repeat=users):
        if any(label > max(labels[:i], default=-1) + 1 for i, label in enumerate(labels)):
            continue  # the same partition under other names
        inertia = 0.0
        for part in set(labels):
            members = [i for i in range(users) if labels[i] == part]
            centre = sum(weight[i] * vectors[i] for i in members) / sum(weight[i] for i in members)
            inertia += sum(weight[i] * ((vectors[i] - centre) ** 2).sum() for i in members)
        if inertia < best:
            best, parts = inertia, labels
    assert parts is not None
    matching = min(
        permutations(range(tasks)), key=lambda m: sum(weight[i] * vectors[i, m[parts[i]]] for i in range(users))
    )
    return [matching[part] for part in parts]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.booleans())
def test_the_best_partition_gets_the_best_matching(seed: int, tasks: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.uniform(0.0, 3.0, (tasks, tasks))[rng.integers(tasks, size=7)] + 0.3 * rng.random((7, tasks))
    weight = rng.uniform(0.1, 1.0, 7) if weighted else np.ones(7)
    found = vector_identities(vectors, np.zeros(7, int), np.random.default_rng(seed), weight if weighted else None)
    assert found.tolist() == plainly(vectors, weight)


def test_groups_that_like_one_model_best_get_a_model_each() -> None:
    vectors = np.array([[1.0, 5.1], [2.1, 3.5], [1.1, 5.0], [2.0, 3.6]])
    assert vectors.argmin(axis=1).tolist() == [0, 0, 0, 0]
    assert vector_identities(vectors, np.zeros(4, int), np.random.default_rng(0)).tolist() == [0, 1, 0, 1]


def test_ties_keep_current_tasks_and_equal_vectors_share_a_model() -> None:
    vectors = np.array([[1.0, 2.0, 2.0]] * 2 + [[2.0, 1.0, 1.0]] * 2)
    for tied in (1, 2):
        current = np.array([0, 0, tied, tied])
        assert vector_identities(vectors, current, np.random.default_rng(0)).tolist() == current.tolist()
    same = np.full((4, 3), 2.3)
    assert vector_identities(same, np.array([0, 2, 2, 1]), np.random.default_rng(0)).tolist() == [2] * 4
    assert vector_identities(np.zeros((4, 3)), np.array([0, 2, 2, 1]), np.random.default_rng(0)).tolist() == [2] * 4


def test_fewer_users_than_models_and_a_single_model() -> None:
    assert vector_identities(np.array([[3.0, 1.0, 2.0]]), np.array([0]), np.random.default_rng(0)).tolist() == [1]
    two = np.array([[1.0, 1.5, 9.0], [1.0, 9.0, 9.0]])
    assert vector_identities(two, np.array([0, 0]), np.random.default_rng(0)).tolist() == [1, 0]
    assert vector_identities(np.ones((5, 1)), np.zeros(5, int), np.random.default_rng(0)).tolist() == [0] * 5


def rule(*overrides: str) -> Any:
    return build_rule(load_scenario("quick", ["clustering.rule=loss_vectors", *overrides]))


def moment(identities: list[int], samples: list[int], tasks: int, **given: Any) -> Any:
    """The round as far as stations need it to hear users."""
    return SimpleNamespace(**{
        "users": len(identities), "tasks": tasks, "identities": np.array(identities), "samples": np.array(samples),
        "memory": {}, "seed": 0, "round": 1, **given,
    })  # fmt: skip


def test_losses_that_are_not_finite_count_as_the_worst() -> None:
    losses = np.array([[1.0, np.nan], [np.inf, 0.5], [1e300, 2.0], [np.nan, np.inf], [0.2, 0.1]])
    told = rule().told(losses, np.zeros_like(losses))
    assert told[[0, 1, 2, 4]].tolist() == [[1.0, 1e6], [1e6, 0.5], [1e6, 2.0], [0.2, 0.1]]
    assert np.isnan(told[3]).all()


def test_users_without_a_vector_keep_their_task() -> None:
    told = np.array([[1.0, 5.0], [np.nan, np.nan], [5.0, 1.0], [1.1, 5.0]])
    at = moment([1, 1, 1, 1, 1], [70] * 5, 2)
    identities, memory = rule().hear(told, np.array([0, 1, 2, 4]), at)
    assert identities.tolist() == [0, 1, 1, 1, 0]
    assert memory == {}
    for nothing in (np.full((2, 2), np.nan), np.array([-1, -1]), np.ones((2, 7)), np.zeros((0, 2))):
        assert rule().hear(nothing, np.arange(len(nothing)), at) == (at.identities, at.memory)


def test_numbers_out_of_this_world_do_not_stop_the_others() -> None:
    told = np.array([[1e308, -1e308], [1.0, 2.0], [2.0, 1.0], [1.0, 2.1]])
    identities, _ = rule().hear(told, np.arange(4), moment([0, 0, 1, 0], [70] * 4, 2))
    assert set(identities.tolist()) <= {0, 1}


def test_announcements_with_noise_add_up_as_a_plain_loop_says() -> None:
    rng = np.random.default_rng(0)
    rounds = [np.arange(5), np.array([0, 2, 3]), np.arange(5), np.array([1, 4])]
    history: list[tuple[np.ndarray, np.ndarray]] = []
    at = moment([0] * 5, [70] * 5, 3)
    for users in rounds:
        vectors, variance = rng.random((len(users), 3)), rng.uniform(0.1, 1.0, 5)[users]
        history.append((users, vectors))
        found, left, at.memory = remembered(vectors, variance, users, at)
        for row, user in enumerate(users):
            total, number, squares, factor = np.zeros(3), 0.0, 0.0, 1.0
            for told_by, told in reversed(history):
                if user in told_by:
                    own = told - told.mean(axis=1)[:, None]
                    total += factor * (own[told_by.tolist().index(user)] - own.mean(axis=0))
                    number, squares, factor = number + factor, squares + factor**2, 0.8 * factor
            level = (vectors - vectors.mean(axis=1)[:, None]).mean(axis=0)
            np.testing.assert_allclose(found[row], total / number + level, atol=1e-12)
            assert left[row] == pytest.approx(variance[row] * squares / number**2)


def test_the_mean_over_rounds_finds_groups_that_no_round_shows() -> None:
    rng, noisy = np.random.default_rng(1), rule("privacy.identity=noisy_contrasts", "privacy.identity_rho=0.02")
    groups = np.repeat(np.arange(4), 3)
    std = noisy.announcement.noise_std(np.full(12, 75))[0]
    at = moment(groups[::-1].tolist(), [75] * 12, 4)
    right = []
    for at.round in range(1, 31):
        # Models move, and all their losses with them; the groups differ by 1.5 standard deviations of the noise.
        losses = 3.0 / at.round + rng.random(4) + rng.random((12, 1)) - 1.5 * std * np.eye(4)[groups]
        at.identities, at.memory = noisy.hear(losses + std * rng.standard_normal((12, 4)), np.arange(12), at)
        right.append((at.identities == groups).mean())
    assert right[0] < 0.8
    assert np.mean(right[-10:]) > 0.95


def test_users_with_less_noise_count_more_only_where_noise_dominates() -> None:
    variance = np.array([1.0, 4.0])
    np.testing.assert_allclose(reliability(np.zeros((2, 3)), variance), [1.0, 0.25])
    far = np.array([[0.0, 0.0], [1e6, 1e6]])
    np.testing.assert_allclose(reliability(far, variance), [1.0, 1.0], atol=1e-9)


@pytest.mark.parametrize("identity", ["noisy_max", "from_release"])
def test_announcements_of_tasks_do_not_go_with_it(identity: str) -> None:
    with pytest.raises(ScenarioError, match='"raw" or "noisy_losses" or "noisy_contrasts"'):
        rule(f"privacy.identity={identity}")


@pytest.mark.parametrize("identity", ["noisy_losses", "noisy_contrasts"])
def test_vectors_do_not_go_with_rules_of_tasks_nor_without_noise(identity: str) -> None:
    with pytest.raises(ScenarioError, match=r"does not go with clustering\.rule = 'loss'"):
        rule("clustering.rule=loss", f"privacy.identity={identity}")
    with pytest.raises(ScenarioError, match=f"'{identity}' but privacy.noise is 'off'"):
        rule(f"privacy.identity={identity}", "privacy.noise=off")
