from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.theory import expected_participation, noise_energy, participation, shares


def test_shares_of_plain_cases() -> None:
    missing, strangers = shares(100, [100, 60, 0, 0], [100, 80, 0, 50])
    np.testing.assert_allclose(missing, [0.0, 0.4, 1.0, 1.0])
    np.testing.assert_allclose(strangers, [0.0, 0.25, 0.0, 1.0])


def test_the_larger_share_counts_and_strangers_are_charged_only_what_they_add() -> None:
    few_strangers = participation(100, 60, 80)
    assert (few_strangers.missing, few_strangers.wrong) == (pytest.approx(0.16), 0.0)
    many_strangers = participation(100, 60, 240)
    assert many_strangers.missing == pytest.approx(0.16)
    assert many_strangers.total == pytest.approx(0.75**2)


@pytest.mark.parametrize("dimension", [1, 3])
def test_no_gradients_exceed_the_share_and_some_reach_it(dimension: int) -> None:
    rng = np.random.default_rng(0)
    counts, served = rng.integers(1, 6, (4000, 6)).astype(float), rng.random((4000, 6)) < 0.6
    group = np.arange(6) < 3
    gradients = rng.standard_normal((4000, 6, dimension))
    gradients /= np.linalg.norm(gradients, axis=-1, keepdims=True)

    def mean(weights: np.ndarray) -> np.ndarray:
        total = np.maximum(weights.sum(axis=-1), 1.0)
        return np.einsum("nu,nud->nd", weights, gradients) / total[:, None]

    error = np.linalg.norm(mean(counts * served) - mean(counts * group), axis=-1)
    x = counts * served
    limit = 2.0 * np.maximum(*shares((counts * group).sum(axis=-1), (x * group).sum(axis=-1), x.sum(axis=-1)))
    assert np.all(error <= limit + 1e-12)
    reached = (error[limit > 0] / limit[limit > 0]).max()
    assert reached > (0.999 if dimension == 1 else 0.7)  # opposite gradients make it sharp


def test_expectation_over_outcomes_is_a_mean_of_squares() -> None:
    found = participation(10, [10, 5, 0], [10, 5, 4], probability=[0.5, 0.3, 0.2])
    assert found.missing == pytest.approx(0.3 * 0.25 + 0.2 * 1.0)
    assert found.wrong == pytest.approx(0.0)


def test_the_closed_form_by_hand() -> None:
    found = expected_participation(
        samples=[4, 6, 5, 5], member=[1, 1, 0, 0], served=[1, 0, 1, 0], misidentified=[0.25, 0.5, 0.4, 0.9], tasks=3
    )
    assert found.missing == pytest.approx(1 - 4 * 0.75 / 10)
    assert found.wrong == pytest.approx(5 * 0.4 / 2 / 10)
    crowded = expected_participation(samples=[4, 100], member=[1, 0], served=[1, 1], misidentified=[0.5, 1.0], tasks=2)
    assert crowded.total == 1.0  # never above 1


@settings(max_examples=100)
@given(
    counts=st.lists(st.integers(1, 50), min_size=6, max_size=6),
    chance=st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6),
    served=st.lists(st.booleans(), min_size=6, max_size=6),
    user=st.integers(0, 5),
    worse=st.floats(0.0, 1.0),
)
def test_losing_a_right_user_or_admitting_a_stranger_never_helps(
    counts: list[int], chance: list[float], served: list[bool], user: int, worse: float
) -> None:
    member = np.arange(6) < 3

    def closed(serves: np.ndarray, wrong: np.ndarray) -> float:
        return float(expected_participation(counts, member, serves, wrong, tasks=4).total)

    def realised(serves: np.ndarray) -> float:
        x = np.array(counts) * serves
        return float(participation(np.array(counts)[member].sum(), x[member].sum(), x.sum()).total)

    serves, wrong = np.array(served), np.array(chance)
    changed = serves.copy()
    changed[user] = user >= 3  # a right user leaves, or a stranger comes
    assert closed(changed, wrong) >= closed(serves, wrong) - 1e-12
    assert realised(changed) >= realised(serves) - 1e-12
    mistaken = wrong.copy()
    mistaken[user] = max(wrong[user], worse)
    assert closed(serves, mistaken) >= closed(serves, wrong) - 1e-12


def test_noise_energy_is_what_drawn_noise_has() -> None:
    samples, served, std = np.array([10.0, 30.0, 60.0]), np.array([1, 0, 1]), np.array([0.5, 9.0, 0.2])
    rng = np.random.default_rng(3)
    drawn = rng.standard_normal((20_000, 3, 8)) * std[:, None]
    mean = np.einsum("u,nud->nd", samples * served, drawn) / (samples * served).sum()
    energy = noise_energy(samples, served, std, weights=8)
    squares = (mean**2).sum(axis=1)
    assert energy == pytest.approx(squares.mean(), abs=4 * squares.std() / np.sqrt(len(squares)))
    assert energy != pytest.approx(2 / 3 * squares.mean(), rel=0.05)
    assert energy < 8**2 * 0.5**2  # the printed bound
    assert noise_energy(samples, 0, std, weights=8) == 0.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: shares(0, 0, 0), "without samples"),
        (lambda: shares(10, 11, 12), "must be a part"),
        (lambda: shares(10, 5, 4), "must be a part"),
        (lambda: participation(10, [5, 5], [5, 5], probability=[0.5, 0.6]), "add up to 1"),
        (lambda: expected_participation([1], [1], [1], [1.5], tasks=2), "from 0 to 1"),
        (lambda: expected_participation([1], [1], [1], [0.5], tasks=1), "fewer than 2"),
        (lambda: expected_participation([1], [0], [1], [0.5], tasks=2), "without samples"),
        (lambda: noise_energy([1], [1], [-1.0], weights=3), "not be negative"),
    ],
)
def test_wrong_input_is_named(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]
