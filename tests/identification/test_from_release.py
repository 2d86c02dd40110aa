from __future__ import annotations

import numpy as np
import pytest

from covey.federated import Intake
from covey.identification import Identification, RuleRound, ScoreRule, Trained, build_rule
from covey.identification.from_release import released_identities
from covey.identification.start import IN_PLAY
from covey.privacy import Journal, Ledger
from covey.scenario import load_scenario


@pytest.mark.parametrize("seed", range(10))
def test_tasks_from_releases_are_those_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    users, tasks, length = 9, 4, 30
    steps, paths = rng.standard_normal((users, length)), rng.standard_normal((tasks, length))
    task, samples = rng.integers(tasks, size=users), rng.integers(50, 100, size=users)
    totals = np.bincount(task, weights=samples, minlength=tasks).astype(float)
    paths[rng.integers(tasks)] = 0
    for k in range(tasks):  # models have gone where their users led them, and a little further
        if totals[k]:
            paths[k] = samples[task == k] @ steps[task == k] / totals[k] + 0.5 * paths[k]
    found = released_identities(steps, task, samples, paths, totals)
    assert found.tolist() == released_by_loop(steps, task, samples, paths, totals)
    single = released_identities(
        steps.astype(np.float32), task, samples, paths.astype(np.float32), totals.astype(np.float64)
    )
    assert single.tolist() == found.tolist()


def test_a_user_does_not_follow_its_own_noise() -> None:
    rng = np.random.default_rng(0)
    length, samples = 1000, np.array([60, 60])
    towards = np.zeros((2, length))
    towards[0, 0] = towards[1, 1] = 3.0
    # User 0 is of kind 1 but in task 0, with noise ten times as long as its gradient; so is user 1 of kind 0 there.
    steps = towards[[1, 0]] + rng.standard_normal((2, length))
    paths = 5 * towards
    paths[0] += steps.mean(axis=0)
    totals = np.array([120.0, 0.0])
    assert released_identities(steps[:1], np.array([0]), samples[:1], paths, totals).tolist() == [1]
    with_noise = [steps[0] @ path / np.linalg.norm(path) for path in paths]
    assert np.argmax(with_noise) == 0


def test_users_for_whom_no_model_has_moved_keep_their_task() -> None:
    step = np.array([[1.0, 2.0, 2.0]])
    still = np.zeros((3, 3))
    assert released_identities(step, np.array([1]), np.array([10]), still, np.array([0.0, 10.0, 0.0])).tolist() == [1]
    # Alone in its task, its model has moved by its own step only.
    alone = still.copy()
    alone[1] = step
    assert released_identities(step, np.array([1]), np.array([10]), alone, np.array([0.0, 10.0, 0.0])).tolist() == [1]
    # Where others have moved, it compares with them alone, even if they went the other way.
    alone[2] = -step
    assert released_identities(step, np.array([1]), np.array([10]), alone, np.array([0.0, 10.0, 9.0])).tolist() == [2]
    assert released_identities(0 * step, np.array([2]), np.array([10]), still, np.full(3, 10.0)).tolist() == [2]
    nobody = released_identities(np.zeros((0, 3)), np.zeros(0, int), np.zeros(0, int), still, np.zeros(3))
    assert nobody.tolist() == []


def released_by_loop(
    steps: np.ndarray, task: np.ndarray, samples: np.ndarray, paths: np.ndarray, totals: np.ndarray
) -> list[int]:
    """One user after the other: the cosine of its step with every path, its own part taken out."""
    found = []
    for step, own, count in zip(steps, task, samples, strict=True):
        cosines = []
        for k, path in enumerate(paths):
            rest = path - count / totals[k] * step if k == own else path
            length = np.linalg.norm(rest)
            cosines.append(-np.inf if length <= 1e-6 * np.linalg.norm(step) else step @ rest / length)
        found.append(int(own) if np.isneginf(cosines).all() else int(np.argmax(cosines)))
    return found


@pytest.mark.parametrize(("in_play", "found"), [(3, 0), (4, 3)])
def test_a_model_that_was_never_sent_is_nobodys_task(in_play: int, found: int) -> None:
    """In its place there may be a copy of another model, which has a path that nobody has seen."""
    scenario = load_scenario("quick", ["privacy.identity=from_release"])
    rule = build_rule(scenario)
    assert isinstance(rule, ScoreRule)
    first, before = np.zeros((4, 30), np.float32), np.eye(4, 30, dtype=np.float32)
    step, tasks = np.eye(4, 30, dtype=np.float32)[3] + np.float32(0.1) * before[0], np.array([0])
    at = RuleRound(
        round=3, seed=0, scenario=scenario, fleet=None, training=None,  # type: ignore[arg-type]
        samples=np.array([50]), clip=np.ones(1), truth=np.array([-1]), models=before, movements=first,
        identities=tasks, exhausted=np.zeros(1, bool), ledger=Ledger(1, delta=1e-5), journal=Journal(),
        memory={IN_PLAY: np.arange(4) < in_play},
    )  # fmt: skip
    trained = Trained(
        Intake(np.array([0]), (before[0] + step)[None], np.ones(1, bool), {}), np.ones(1, bool), np.ones(1),
        before, first, np.array([1e4, 0, 0, 0]), first,
    )  # fmt: skip
    regrouped = rule.after_round(at, Identification(tasks, at.ledger), trained)
    assert regrouped.identities.tolist() == [found]
