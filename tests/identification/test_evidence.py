"""What uploads of several rounds say about pairs of users, and the best split of a task's users."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from covey.identification import clustering_accuracy
from covey.identification.evidence import FADE, REMEMBERED, Evidence, Split, best_split

SIZE = 400


def steps_of(groups: np.ndarray, noise: np.ndarray, seed: int, own: float = 0.0, size: int = SIZE) -> np.ndarray:
    """(n, D) noised steps: those of a group have one direction and squared length 1, groups are orthogonal.

    own: squared length of what each user has of its own.
    """
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((size, int(groups.max()) + 1)))[0].T
    personal = rng.standard_normal((len(groups), size)) * np.sqrt(own / size)
    return basis[groups] + personal + noise[:, None] * rng.standard_normal((len(groups), size))


def heard(groups: np.ndarray, noise: float, seed: int, rounds: int = 1, **more: float) -> Evidence:
    """The evidence of `rounds` rounds in which everybody was heard, under noise that differs five-fold between users.

    noise: standard deviation of what noise adds to a product of two users, where their squared length is 1.
    """
    rng = np.random.default_rng([seed, 9])
    users = np.arange(len(groups))
    evidence = Evidence.none(users)
    noise_std = np.sqrt(noise) * SIZE**-0.25 * rng.uniform(0.4, 2.0, len(groups))
    for number in range(rounds):
        if number:
            evidence = Evidence.remembered(evidence.memory, len(groups), users)
        evidence = evidence.heard(users, steps_of(groups, noise_std, seed * 100 + number, **more), noise_std)
    return evidence


def split_of(evidence: Evidence, parts: int = 2, seed: int = 0, reference: float = 0.0) -> Split:
    users = evidence.heard_users
    return best_split(evidence, users, np.ones(len(users)), parts, np.random.default_rng(seed), reference)


def test_products_of_rounds_add_up_and_older_ones_fade() -> None:
    steps = np.random.default_rng(0).standard_normal((3, 2, 20))
    noise, users = np.array([0.1, 0.3]), np.array([1, 3])
    evidence = Evidence.none(np.arange(5)).heard(users, steps[0], noise)
    for one in steps[1:]:
        evidence = Evidence.remembered(evidence.memory, 5, users).heard(users, one, noise)
    values, variance, known = evidence.among(users)
    assert known.all()
    weights = FADE ** np.arange(2, -1, -1)
    expected = (weights * (steps[:, 0] * steps[:, 1]).sum(axis=1)).sum() / weights.sum()
    assert values[0, 1] == values[1, 0] == pytest.approx(expected)
    own = (steps[:, 0] ** 2).sum(axis=1) - 0.01 * 20
    assert values[0, 0] == pytest.approx((weights * own).sum() / weights.sum())
    once = [Evidence.none(users).heard(users, one, noise).variances[0, 1] for one in steps]
    assert variance[0, 1] == pytest.approx((weights**2 * once).sum() / weights.sum() ** 2)
    assert evidence.counts[1, 3] == pytest.approx(weights.sum())
    assert evidence.heard_users.tolist() == [1, 3]


def test_hearing_changes_nothing_that_was_there_before() -> None:
    before = Evidence.none(np.arange(4))
    before.heard(np.array([0, 2]), np.ones((2, 5)), np.zeros(2))
    assert not before.counts.any()
    assert not before.sums.any()
    assert len(before.heard_users) == 0


def test_more_rounds_average_the_noise_out() -> None:
    groups = np.arange(12) % 2
    errors = []
    for rounds in (1, 8):
        off = []
        for seed in range(20):
            values, variance, _ = heard(groups, 1.0, seed, rounds).among(np.arange(12))
            apart = ~np.eye(12, dtype=bool)
            off.append(((values - np.equal.outer(groups, groups))[apart] ** 2).mean() / variance[apart].mean())
        # The variance that is stated is the one that is found.
        assert np.mean(off) == pytest.approx(1.0, abs=0.25)
        errors.append(variance[apart].mean())
    assert errors[1] < errors[0] / 4


def test_pairs_that_never_stepped_from_one_model_are_unknown() -> None:
    noise = np.zeros(2)
    evidence = Evidence.none(np.arange(6)).heard(np.array([0, 1]), np.eye(2, 8), noise)
    evidence = evidence.heard(np.array([2, 3]), np.eye(2, 8), noise)
    _, _, known = evidence.among(np.array([0, 1, 2, 3]))
    assert known.tolist() == [[True, True, False, False]] * 2 + [[False, False, True, True]] * 2
    assert evidence.heard_users.tolist() == [0, 1, 2, 3]


def test_a_split_with_unknown_pairs_goes_by_the_known_ones() -> None:
    """Users 0 to 5 are heard together, then 3 to 8: 0 to 2 never met 6 to 8."""
    groups = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0])
    evidence = Evidence.none(np.arange(9))
    steps = steps_of(groups, np.full(9, 0.01), 0)
    for users in (np.arange(6), np.arange(3, 9)):
        evidence = evidence.heard(users, steps[users], np.full(6, 0.01))
    split = split_of(evidence)
    assert clustering_accuracy(split.labels, groups) == 1.0
    assert split.real


def test_users_of_whom_no_pair_is_known_are_not_split() -> None:
    evidence = Evidence.none(np.arange(4))
    for user in range(4):
        evidence = evidence.heard(np.array([user]), np.eye(4)[[user]], np.full(1, 0.1))
    split = split_of(evidence)
    assert not split.real
    assert split.hidden
    assert np.isfinite([split.level, split.cosine, split.chance, split.difference]).all()


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_two_groups_are_told_apart(noise: float) -> None:
    groups = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1, 0])
    for seed in range(20):
        split = split_of(heard(groups, noise, seed, own=0.3))
        assert clustering_accuracy(split.labels, groups) == 1.0
        assert split.real
        assert not split.single
        assert not split.hidden
        assert split.parts == 2
        assert split.level == pytest.approx(1.0, abs=0.4)
        assert abs(split.cosine) < 0.4


def test_unequal_groups_are_told_apart_down_to_one_user() -> None:
    groups = np.array([0] * 9 + [1])
    found = [split_of(heard(groups, 0.1, seed, rounds=3)) for seed in range(20)]
    assert np.mean([clustering_accuracy(split.labels, groups) == 1.0 for split in found]) > 0.9
    assert np.mean([split.real for split in found]) > 0.9


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_one_group_is_single(noise: float) -> None:
    found = [split_of(heard(np.zeros(10, np.int64), noise, seed, own=0.2)) for seed in range(20)]
    assert all(split.single for split in found)
    assert not any(split.real or split.hidden for split in found)


@pytest.mark.parametrize(("users", "noise", "parts"), [(3, 0.3, 2), (6, 3.0, 2), (6, 0.3, 4), (12, 0.7, 2)])
def test_one_group_is_hardly_ever_taken_for_several(users: int, noise: float, parts: int) -> None:
    """At most 2 % of 300 draws, with three of its standard deviations."""
    group = np.zeros(users, np.int64)
    wrong = [split_of(heard(group, noise, seed, own=0.3), parts).real for seed in range(300)]
    assert np.mean(wrong) <= 0.02 + 3 * np.sqrt(0.02 * 0.98 / 300)


def test_heavy_noise_hides_two_groups_and_is_not_taken_for_one() -> None:
    groups = np.arange(8) % 2
    found = [split_of(heard(groups, 20.0, seed)) for seed in range(50)]
    assert np.mean([split.hidden for split in found]) > 0.9
    assert np.mean([split.real for split in found]) < 0.05
    assert np.mean([split.single for split in found]) < 0.05


def test_what_noise_hides_is_judged_by_the_largest_step_seen() -> None:
    """A group whose steps have become short is not hidden: two groups with long ones would have been seen."""
    evidence = heard(np.zeros(8, np.int64), 20.0, 0)
    assert split_of(evidence).hidden
    assert not split_of(evidence, reference=100.0).hidden
    assert split_of(evidence, reference=100.0).level == 100.0


@pytest.mark.parametrize("number", [3, 4])
def test_several_groups_and_too_many_parts(number: int) -> None:
    groups = np.arange(16) % number
    evidence = heard(groups, 0.2, 1, rounds=3)
    right = split_of(evidence, number)
    assert right.real
    assert clustering_accuracy(right.labels, groups) == 1.0
    for parts in (number + 1, number + 2):
        assert not split_of(evidence, parts).real


def test_two_parts_of_three_groups_are_seen_to_differ() -> None:
    """Rescue splits a task in two, however many groups share it."""
    groups = np.arange(12) % 3
    split = split_of(heard(groups, 0.1, 0))
    assert split.real
    # No group is torn.
    assert all(len(set(split.labels[groups == group].tolist())) == 1 for group in range(3))


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_units_do_not_matter(scale: float) -> None:
    groups, noise = np.arange(10) % 2, np.full(10, 0.05)
    users = np.arange(10)
    one = Evidence.none(users).heard(users, scale * steps_of(groups, noise, 0), scale * noise)
    split = split_of(one)
    reference = split_of(Evidence.none(users).heard(users, steps_of(groups, noise, 0), noise))
    np.testing.assert_array_equal(split.labels, reference.labels)
    assert (split.real, split.single, split.hidden) == (reference.real, reference.single, reference.hidden)
    assert split.score == pytest.approx(reference.score, rel=1e-6)
    assert split.level == pytest.approx(reference.level * scale**2, rel=1e-6)


def test_one_user_is_never_split() -> None:
    evidence = Evidence.none(np.arange(1)).heard(np.zeros(1, np.int64), np.ones((1, 4)), np.zeros(1))
    split = split_of(evidence)
    assert split.parts == 1
    assert not split.real


def test_the_memory_is_all_there_is() -> None:
    evidence = heard(np.arange(6) % 2, 0.3, 0, rounds=2)
    memory = {name: array.copy() for name, array in evidence.memory.items()}
    assert sorted(memory) == ["evidence.counts", "evidence.sums", "evidence.variances"]
    again = Evidence.remembered(memory, 6, np.array([2]))
    np.testing.assert_array_equal(again.users, np.arange(6))
    np.testing.assert_array_equal(again.sums, FADE * evidence.sums)
    np.testing.assert_array_equal(again.variances, FADE**2 * evidence.variances)
    np.testing.assert_array_equal(again.counts, FADE * evidence.counts)
    # What is remembered is not changed by reading it.
    np.testing.assert_array_equal(memory["evidence.sums"], evidence.sums)


@pytest.mark.parametrize("served", [40, REMEMBERED + 60])
def test_memory_is_bounded_with_many_users(served: int) -> None:
    users, size = 5000, 16
    rng = np.random.default_rng(0)
    now = np.sort(rng.permutation(users)[:served])
    evidence = Evidence.remembered({}, users, now).heard(now, rng.standard_normal((served, size)), np.full(served, 0.1))
    assert evidence.sums.shape == (min(served, REMEMBERED),) * 2
    assert evidence.memory == {}
    assert np.isin(evidence.heard_users, now).all()
    # Nothing of one round is left in the next.
    assert not Evidence.remembered(evidence.memory, users, now[:4]).counts.any()


def test_memory_is_bounded_when_the_first_users_of_many_are_served() -> None:
    users, now = 2 * REMEMBERED, np.arange(REMEMBERED)
    evidence = Evidence.remembered({}, users, now).heard(now, np.ones((REMEMBERED, 3)), np.zeros(REMEMBERED))
    again = Evidence.remembered(evidence.memory, users, np.array([700, 900]))
    assert again.users.tolist() == [700, 900]
    assert not again.counts.any()
    # Up to so many users, everybody is remembered.
    assert len(Evidence.remembered({}, REMEMBERED, now[:3]).users) == REMEMBERED


def test_flags_of_a_split_are_by_its_numbers() -> None:
    split = Split(np.array([0, 1]), 1.0, 0.0, 0.1, 5.0, 3.0, 9.0, 1.0, 2.0)
    assert split.real
    assert not replace(split, score=3.0).real, "no more than chance"
    assert not replace(split, cosine=0.6).real, "centres too near"
    assert not replace(split, difference=0.2).real, "too little to matter"
    assert not replace(split, labels=np.zeros(2, np.int64)).real, "one part"
    assert replace(split, cosine=0.8).single
    assert not replace(split, cosine=0.8, cosine_std=0.2).single
    assert replace(split, visible=2.0).hidden
    assert replace(split, visible=float("nan")).hidden
