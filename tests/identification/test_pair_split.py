"""Two users of a task are told apart by the length of other groups' steps, and chance is not taken for groups."""

from __future__ import annotations

import numpy as np
import pytest

from covey.identification.evidence import Evidence, best_split, pair_split

SIZE, STEP = 400, 1.0


def heard(groups: list[int], noise: float, seed: int, rounds: int = 1) -> Evidence:
    """Unit steps of groups in directions of their own, with noise on every weight."""
    rng, users = np.random.default_rng(seed), np.arange(len(groups))
    evidence = Evidence.none(users)
    for _ in range(rounds):
        steps = np.eye(SIZE)[groups] * STEP + noise * rng.standard_normal((len(groups), SIZE))
        evidence = evidence.heard(users, steps, np.full(len(groups), noise))
    return evidence


@pytest.mark.parametrize(("groups", "apart"), [([0, 0], False), ([0, 1], True)])
def test_two_users_are_apart_if_their_steps_have_nothing_in_common(groups: list[int], apart: bool) -> None:
    found = [pair_split(heard(groups, 0.08, seed, rounds=4), np.arange(2), STEP, STEP) for seed in range(200)]
    share = np.mean([split.real for split in found])
    assert share > 0.95 if apart else share < 0.02
    assert np.mean([split.single for split in found]) > 0.9 if not apart else not any(split.single for split in found)


def pair(lengths: tuple[float, float], cosine: float, noise: float, seed: int, rounds: int) -> Evidence:
    """Steps of two users, of these lengths and with this cosine, with noise on every weight."""
    rng, axes = np.random.default_rng(seed), np.eye(2, SIZE)
    steps = np.stack([lengths[0] * axes[0], lengths[1] * (cosine * axes[0] + np.sqrt(1 - cosine**2) * axes[1])])
    evidence = Evidence.none(np.arange(2))
    for _ in range(rounds):
        evidence = evidence.heard(np.arange(2), steps + noise * rng.standard_normal(steps.shape), np.full(2, noise))
    return evidence


@pytest.mark.parametrize("noise", [0.02, 0.08, 0.16])
@pytest.mark.parametrize("lengths", [(0.7, 0.7), (1.0, 0.5), (0.4, 0.4), (0.3, 1.2)], ids=str)
def test_two_users_of_one_group_with_shorter_steps_than_others_are_not_apart(
    lengths: tuple[float, float], noise: float
) -> None:
    """Groups have steps of unequal lengths: other groups' length is no measure of what these two have in common."""
    for rounds in (1, 4):
        found = [pair_split(pair(lengths, 1.0, noise, seed, rounds), np.arange(2), STEP, STEP) for seed in range(200)]
        assert np.mean([split.real for split in found]) < 0.02
    assert noise > 0.02 or np.mean([split.single for split in found]) > 0.9


@pytest.mark.parametrize("lengths", [(0.7, 0.7), (1.0, 0.5), (2.0, 2.0)], ids=str)
def test_two_users_with_steps_of_other_lengths_than_others_are_apart_if_they_have_nothing_in_common(
    lengths: tuple[float, float],
) -> None:
    found = [pair_split(pair(lengths, 0.0, 0.04, seed, 4), np.arange(2), STEP, STEP) for seed in range(200)]
    assert np.mean([split.real for split in found]) > 0.95
    assert not any(split.single for split in found)


def test_two_users_whose_own_steps_noise_hides_stay_together() -> None:
    found = [pair_split(pair((0.1, 0.1), 0.0, 0.3, seed, 1), np.arange(2), STEP, STEP) for seed in range(200)]
    assert np.mean([split.real for split in found]) < 0.03
    assert np.mean([split.hidden for split in found]) > 0.95


def test_two_users_of_whom_nothing_is_known_stay_together() -> None:
    split = pair_split(Evidence.none(np.arange(2)), np.arange(2), STEP, STEP)
    assert split.parts == 1
    assert not split.real
    assert not split.single
    assert split.hidden
    # They were never heard in one round: waiting may tell, until they are.
    assert split.soon
    assert not pair_split(pair((0.1, 0.1), 0.0, 3.0, 0, 1), np.arange(2), STEP, STEP).soon


@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize("users", [4, 8, 12])
def test_the_best_partition_of_one_group_is_seldom_taken_for_groups(users: int, parts: int) -> None:
    rng = np.random.default_rng(1)
    real = [
        best_split(heard([0] * users, 0.2, seed), np.arange(users), np.ones(users), parts, rng, STEP).real
        for seed in range(150)
    ]
    assert np.mean(real) < 0.05


def test_groups_of_one_user_are_told_apart_as_well() -> None:
    groups = [0] * 7 + [1] * 3 + [2, 3]
    rng = np.random.default_rng(1)
    split = best_split(heard(groups, 0.05, 0, rounds=3), np.arange(12), np.ones(12), 4, rng)
    assert split.real
    assert len({(label, group) for label, group in zip(split.labels, groups, strict=True)}) == 4
