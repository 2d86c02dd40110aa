"""The announcement of the examples, used from outside the package by `module:attribute`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from examples.parts.randomised_response import respond
from scipy.stats import chisquare

import covey
from covey.errors import ScenarioError

KEY = "privacy.identity=examples.parts.randomised_response:RandomisedResponse"


def play(*overrides: str, rounds: int = 3, **given: Any) -> covey.History:
    return covey.simulate(covey.load_scenario("quick", list(overrides)), rounds=rounds, seed=1, **given)


def expected(tasks: int, epsilon: float, draws: int) -> np.ndarray:
    """How often each task is answered by users of task 1."""
    weights = np.ones(tasks)
    weights[1] = math.exp(epsilon)
    return draws * weights / weights.sum()


@pytest.mark.parametrize(("tasks", "epsilon"), [(2, 1.0), (4, 0.5), (5, 2.0)])
def test_answers_are_as_likely_as_the_charge_says_and_not_more_or_less_so(tasks: int, epsilon: float) -> None:
    draws = 20_000
    uniform = np.random.default_rng(tasks).random((draws, 2))
    found = np.bincount(respond(np.full(draws, 1), tasks, epsilon, uniform), minlength=tasks)
    assert chisquare(found, expected(tasks, epsilon, draws)).pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert chisquare(found, expected(tasks, wrong * epsilon, draws)).pvalue < 1e-6


def test_the_ends_of_the_uniform_numbers_and_a_single_task() -> None:
    ends = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    assert respond(np.array([1, 1, 1]), 3, 1.0, ends).tolist() == [1, 2, 0]
    assert respond(np.array([0, 0, 0]), 1, 1.0, ends).tolist() == [0, 0, 0]


def test_every_answer_is_charged_before_it_is_given_and_protected() -> None:
    raw, noised = play(), play(KEY, "privacy.identity_rho=0.5")
    # Tasks of the first round are drawn, those of the two others announced.
    assert (noised.ledger.announcements == 2).all()
    np.testing.assert_allclose(noised.ledger.spent["identity"], 2 * 0.5)
    assert raw.ledger.unprotected.all()
    assert not noised.ledger.unprotected.any()
    assert "randomised response" in " ".join(noised.notes)


def test_users_that_cannot_afford_an_answer_keep_their_task() -> None:
    history = play(KEY, "privacy.identity_rho=5", "privacy.budget_epsilon=4")
    identity = history.user_column("identity")
    assert (identity == identity[0]).all()
    assert history.ledger.refusals.all()


def test_without_lies_the_tasks_are_those_of_raw_announcements() -> None:
    honest, raw = play(KEY, "privacy.identity_rho=1000"), play()
    assert honest.user_column("identity").tolist() == raw.user_column("identity").tolist()
    lying = play(KEY, "privacy.identity_rho=0.02")
    assert lying.user_column("identity").tolist() != raw.user_column("identity").tolist()


def test_it_goes_with_rules_of_ones_own_masks_and_workers() -> None:
    rule = "clustering.rule=examples.parts.similarity_rule:Similarity"
    alone, pair = (play(KEY, rule, "privacy.identity_rho=2", workers=workers) for workers in (1, 2))
    assert alone.user_column("identity").tolist() == pair.user_column("identity").tolist()
    assert alone.models.tobytes() == pair.models.tobytes()
    assert (play(KEY, "security.mode=masked", rounds=2).ledger.announcements == 1).all()


def test_what_cannot_be_given_is_refused_in_one_sentence() -> None:
    with pytest.raises(ScenarioError, match=r"^randomised response needs noise[^\n]*$"):
        play(KEY, "privacy.noise=off")
    with pytest.raises(ScenarioError, match=r"^[^\n]*does not go with clustering.rule = 'kmeans'[^\n]*$"):
        play(KEY, "clustering.rule=kmeans")
