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


def test_two_users_of_whom_nothing_is_known_stay_together() -> None:
    split = pair_split(Evidence.none(np.arange(2)), np.arange(2), STEP, STEP)
    assert split.parts == 1
    assert not split.real
    assert not split.single
    assert split.hidden


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
