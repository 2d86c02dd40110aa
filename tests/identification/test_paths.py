"""Steps along a model's path: what sums over rounds say, when they begin anew, and what stays when a user leaves."""

from __future__ import annotations

import numpy as np
import pytest

from covey.identification.evidence import FADE, Evidence
from covey.identification.paths import LARGEST, Paths

SIZE = 300


def walk(
    groups: np.ndarray, rounds: int, noise: float, seed: int, served: int | None = None, memory: bool = False
) -> tuple[Evidence, np.ndarray]:
    """Evidence after `rounds` rounds in which `served` users (all if not given) stepped from one model, and the steps
    (U, D) without noise."""
    rng = np.random.default_rng(seed)
    users = len(groups)
    steps = np.linalg.qr(rng.standard_normal((SIZE, int(groups.max()) + 1)))[0].T[groups]
    evidence = Evidence.remembered({}, users, np.arange(users), SIZE)
    for number in range(rounds):
        heard = np.arange(users) if served is None else (np.arange(served) + number * served) % users
        std = np.full(len(heard), noise)
        released = steps[heard] + noise * rng.standard_normal((len(heard), SIZE))
        if number:
            evidence = Evidence.remembered(evidence.memory, users, heard, SIZE)
        evidence = evidence.walked(heard, np.zeros(len(heard), np.int64), released, std)
    return evidence, steps


def test_products_are_unbiased_and_have_the_stated_variance() -> None:
    groups = np.array([0, 0, 1, 1])
    errors, stated, biased = [], [], []
    for seed in range(300):
        evidence, steps = walk(groups, 4, 0.3, seed)
        values, variance, known = evidence.among(np.arange(4))
        assert known.all()
        errors.append(values - steps @ steps.T)
        stated.append(variance)
        assert evidence.paths is not None
        means = evidence.paths.steps / evidence.paths.rounds[:, None]
        biased.append(np.diag(means @ means.T) - 1)
    apart = ~np.eye(4, dtype=bool)
    mean, spread = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1)
    assert (np.abs(mean) < 4.5 * spread / np.sqrt(300)).all(), "debiased, also a user's product with itself"
    assert spread[apart] ** 2 == pytest.approx(np.mean(stated, axis=0)[apart], rel=0.35)
    # Without the correction, squared lengths are far off.
    assert np.mean(biased) > 20 * spread.max() / np.sqrt(300)


def test_sums_say_more_than_products_of_single_rounds() -> None:
    groups, users = np.array([0, 0, 0, 1, 1, 1]), np.arange(6)
    noise = np.full(6, 0.5)
    together, apart = [], []
    for seed in range(40):
        evidence, steps = walk(groups, 8, 0.5, seed)
        rng = np.random.default_rng([seed, 1])
        single = Evidence.none(users)
        for number in range(8):
            if number:
                single = Evidence.remembered(single.memory, 6, users)
            single = single.heard(users, steps + 0.5 * rng.standard_normal((6, SIZE)), noise)
        pairs = ~np.eye(6, dtype=bool)
        together.append(((evidence.among(users)[0] - steps @ steps.T)[pairs] ** 2).mean())
        apart.append(((single.among(users)[0] - steps @ steps.T)[pairs] ** 2).mean())
    assert np.mean(together) < 0.4 * np.mean(apart)


def test_users_of_different_rounds_are_compared() -> None:
    groups = np.array([0, 1, 0, 1])
    evidence, steps = walk(groups, 8, 0.05, 0, served=1)
    values, _, known = evidence.among(np.arange(4))
    assert known.all()
    np.testing.assert_allclose(values, steps @ steps.T, atol=0.2)


def test_older_steps_fade() -> None:
    paths = Paths.remembered({}, 2, 3)
    one, zero = np.array([0]), np.zeros(1, np.int64)
    for step in (1.0, 10.0):
        paths = paths.walked(one, zero, np.full((1, 3), step), np.array([0.5]), FADE)
    np.testing.assert_allclose(paths.steps[0], FADE * 1 + 10, rtol=1e-6)
    assert paths.rounds.tolist() == pytest.approx([FADE + 1, 0])
    assert paths.variance[0] == pytest.approx(0.25 * (FADE**2 + 1))
    assert paths.model.tolist() == [0, -1]


def test_a_user_that_leaves_begins_anew_and_what_was_known_of_its_pairs_stays() -> None:
    groups = np.array([0, 0, 1, 1])
    evidence, _ = walk(groups, 3, 0.1, 1)
    before = evidence.among(np.arange(4))
    moved = evidence.settled(np.array([0, 0, 0, 2]))
    assert moved.paths is not None
    assert moved.paths.model.tolist() == [0, 0, 0, -1]
    assert moved.heard_users.tolist() == [0, 1, 2, 3]
    after = moved.among(np.arange(4))
    np.testing.assert_allclose(after[0], before[0], rtol=1e-9)
    # A variance contains the mean squared length of all users that were looked at together.
    np.testing.assert_allclose(after[1], before[1], rtol=0.5)
    np.testing.assert_array_equal(after[2], before[2])
    # On different paths, nothing new is known of the pair.
    now = np.array([2, 3])
    apart = moved.walked(now, np.array([0, 2]), np.ones((2, SIZE)), np.full(2, 0.1))
    assert apart.among(np.array([2, 3]))[0][0, 1] == pytest.approx(before[0][2, 3])
    assert evidence.settled(np.zeros(4, np.int64)) is evidence, "nobody left"


def test_too_many_weights_are_not_kept() -> None:
    users = 20
    assert Paths.fit(users, LARGEST // users)
    assert not Paths.fit(users, LARGEST // users + 1)
    evidence = Evidence.remembered({}, users, np.arange(3), LARGEST // users + 1)
    assert evidence.paths is None
    assert Evidence.remembered({}, users, np.arange(3)).paths is None
