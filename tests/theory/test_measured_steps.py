"""Bounds from real error vectors, on random clipped and noised steps of ridge regression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from covey.theory import (
    Curvature,
    Participation,
    RunBound,
    StepMeasures,
    TaskBound,
    lemma,
    measure_step,
    measure_users,
    noise_energy,
    one_step,
    split,
    stationarity,
    theorem_1,
    worst_case,
)

D = 5


@dataclass(frozen=True)
class Case:
    measures: StepMeasures
    curvature: Curvature
    rate: float
    expected: float


def cases(number: int, *, clip: float, rate: float, noise: float = 0.2) -> Iterator[Case]:
    """One step each; `rate` is in units of 1 / L."""
    rng = np.random.default_rng(5)
    for _ in range(number):
        counts = rng.integers(2, 8, 6)
        owner = np.repeat(np.arange(6), counts)
        x = rng.standard_normal((len(owner), D)) * rng.uniform(0.3, 2.0, D)
        truth = rng.standard_normal((2, D))[(owner >= 3).astype(int)]
        y = np.einsum("nd,nd->n", x, truth)
        w = 2.0 * rng.standard_normal(D)
        ridge = 0.1
        group = owner < 3
        hessian = x[group].T @ x[group] / group.sum() + ridge * np.eye(D)
        curvature = Curvature(float(np.linalg.eigvalsh(hessian)[-1]), float(np.trace(hessian)) / D, "bound")
        alpha = rate / curvature.largest
        samples = x * (x @ w - y)[:, None] + ridge * w
        norms = np.linalg.norm(samples, axis=1)
        clipped = samples * np.minimum(1.0, clip / norms)[:, None]
        serves = rng.random(6) < 0.6
        taking = serves[owner]
        std = noise * rng.random(6)
        energy = float(noise_energy(counts, serves, std, weights=D))
        taken = clipped[taking].mean(axis=0) if taking.any() else np.zeros(D)

        def loss(at: np.ndarray, x: np.ndarray = x, y: np.ndarray = y, group: np.ndarray = group) -> float:
            return float(0.5 * ((x[group] @ at - y[group]) ** 2).mean() + 0.05 * at @ at)

        moved = taken + np.sqrt(energy / D) * rng.standard_normal(D)
        both = taking & group
        measures = measure_step(
            loss=loss(w),
            next_loss=loss(w - alpha * moved),
            gradient=samples[group].mean(axis=0),
            clipped=clipped[group].mean(axis=0),
            right=clipped[both].mean(axis=0) if both.any() else np.zeros(D),
            served=taken,
            taken=taken,
            moved=moved,
            group_samples=int(group.sum()),
            right_samples=int(both.sum()),
            served_samples=int(taking.sum()),
            largest=float(np.minimum(norms, clip)[taking | group].max()),
            noise_energy=energy,
        )
        expected = loss(w - alpha * taken) + 0.5 * alpha**2 * energy * curvature.mean
        yield Case(measures, curvature, alpha, expected)


@pytest.mark.parametrize(("clip", "rate"), [(np.inf, 1.0), (np.inf, 0.3), (2.0, 1.0), (0.5, 4.0), (2.0, 3.0)])
def test_truth_lemma_one_step_and_worst_case_are_in_this_order(clip: float, rate: float) -> None:
    descents = 0
    for case in cases(300, clip=clip, rate=rate):
        given = (case.measures, case.curvature, case.rate)
        step = one_step(*given)
        room = 1e-9 * (1.0 + abs(case.expected))
        assert case.expected <= lemma(*given)[0] + room
        assert lemma(*given)[0] <= step.total[0] + room
        assert step.total[0] <= worst_case(*given)[0] + room
        descents += bool(step.total[0] < case.measures.loss[0])
    assert descents > 0


def test_without_clipping_the_worst_case_is_the_corrected_theorem_before_dominance() -> None:
    for case in cases(50, clip=np.inf, rate=0.7):
        m = case.measures
        assert m.kept == pytest.approx(1.0)
        assert m.clipping == pytest.approx(0.0, abs=1e-12)
        share = float(max(m.missing_share[0], m.wrong_share[0]))
        # With mu chosen so that (25) is an equality at this point, the theorem is the same number.
        gap = float(m.loss[0])
        mu = float(m.gradient[0] ** 2) / (2.0 * gap)
        if mu > case.curvature.largest:
            continue
        isotropic = Curvature(case.curvature.largest, case.curvature.largest, "bound")
        theorem = theorem_1(
            gap, smoothness=case.curvature.largest, convexity=mu, gradient_offset=m.largest[0] ** 2,
            gradient_slope=0.0, participation=Participation(np.array(share**2), np.array(0.0)),
            noise_energy=m.noise_energy[0], learning_rate=case.rate,
        )  # fmt: skip
        assert worst_case(m, isotropic, case.rate)[0] == pytest.approx(float(theorem.total))


def test_parts_add_up_and_share_the_cost_by_length() -> None:
    case = next(cases(1, clip=1.0, rate=1.0))
    step = one_step(case.measures, case.curvature, case.rate)
    cost = step.missing + step.wrong + step.clipping
    lengths = np.concatenate([case.measures.missing, case.measures.wrong, case.measures.clipping])
    np.testing.assert_allclose(
        np.concatenate([step.missing, step.wrong, step.clipping]) / cost, lengths / lengths.sum()
    )


def test_nobody_served_leaves_the_loss_and_the_bound_says_so() -> None:
    gradient = np.array([3.0, -4.0])
    nothing = np.zeros(2)
    measures = measure_step(
        loss=2.0, next_loss=2.0, gradient=gradient, clipped=0.2 * gradient, right=nothing, served=nothing,
        taken=nothing, moved=nothing, group_samples=10, right_samples=0, served_samples=0, largest=1.0,
        noise_energy=0.0,
    )  # fmt: skip
    curvature = Curvature(2.0, 0.1, "bound")
    assert measures.kept == pytest.approx(0.2)
    assert one_step(measures, curvature, 1.0).total == pytest.approx(2.0)
    assert lemma(measures, curvature, 1.0) == pytest.approx(2.0)
    assert one_step(measures, curvature, 1.0).dominant[0] == "missing"


def test_a_zero_or_reversed_gradient_is_no_division_by_zero() -> None:
    step = np.array([0.5, 0.0])
    for gradient in (np.zeros(2), -2.0 * step):
        measures = measure_step(
            loss=1.0, next_loss=1.0, gradient=gradient, clipped=step, right=step, served=step, taken=step, moved=step,
            group_samples=4, right_samples=4, served_samples=4, largest=1.0, noise_energy=0.0,
        )  # fmt: skip
        assert measures.kept == 1.0
        bound = one_step(measures, Curvature(1.0, 1.0, "bound"), 0.5)
        assert np.isfinite(bound.total).all()
        assert bound.dominant[0] == "clipping"


def test_what_a_step_has_beyond_one_over_smoothness_is_its_own_error() -> None:
    gradient = np.array([0.6, 0.8])
    measures = measure_step(
        loss=1.0, next_loss=1.0, gradient=gradient, clipped=gradient, right=gradient, served=gradient, taken=gradient,
        moved=gradient, group_samples=4, right_samples=4, served_samples=4, largest=1.0, noise_energy=0.0,
    )  # fmt: skip
    curvature = Curvature(2.0, 2.0, "bound")
    for rate, overshoot in ((0.25, 0.0), (0.5, 0.0), (0.8, 0.375), (2.0, 0.75)):
        made = split(measures, curvature, rate)
        assert made.overshoot == pytest.approx(overshoot)
        assert made.error == pytest.approx(overshoot)
        assert made.step == pytest.approx(min(rate, 0.5))
        bound = one_step(measures, curvature, rate)
        assert bound.dominant[0] == ("overshoot" if overshoot else "none")
        if rate >= 0.5:
            assert bound.total == pytest.approx(lemma(measures, curvature, rate))


def task_bound(rate: float = 0.5, number: int = 4) -> TaskBound:
    chosen = list(cases(number, clip=1.0, rate=rate))
    measures = StepMeasures.stack([case.measures for case in chosen])
    curvature = Curvature(max(c.curvature.largest for c in chosen), max(c.curvature.mean for c in chosen), "bound")
    return TaskBound(0, 1, 20, min(c.rate for c in chosen), 0.0, curvature, measures)


def test_a_run_adds_up_its_rounds() -> None:
    task = task_bound()
    changes = task.bound.total - task.measures.loss
    assert task.accumulated[-1] == pytest.approx(task.measures.loss[0] + changes.sum())
    np.testing.assert_allclose(task.looseness, task.bound.total / task.measures.next_loss)
    run = RunBound([task, TaskBound(1, 0, 60, *(getattr(task, n) for n in list(vars(task_bound()))[3:7]))])
    assert run.weights.tolist() == [0.25, 0.75]
    assert sum(run.shares.values()) == pytest.approx(1.0)
    assert run.added[run.dominant] == max(run.added.values())
    record = run.to_dict()
    assert record["steps"] == 8
    assert record["tasks"][0]["rounds"]["bound"] == task.bound.total.tolist()


def test_stationarity_of_a_run_is_the_theorem_when_nothing_is_clipped() -> None:
    gradient, rounds, alpha = np.array([0.6, 0.8]), 5, 0.25
    measures = StepMeasures.stack(
        [
            measure_step(
                loss=1.0 - 0.1 * t, next_loss=0.9 - 0.1 * t, gradient=gradient, clipped=gradient, right=gradient,
                served=gradient, taken=gradient, moved=gradient, group_samples=9, right_samples=9, served_samples=9,
                largest=2.0, noise_energy=0.3,
            )
            for t in range(rounds)
        ]
    )  # fmt: skip
    task = TaskBound(0, 0, 9, alpha, 0.2, Curvature(2.0, 2.0, "bound"), measures)
    theorem = stationarity(
        0.8, smoothness=2.0, gradient_offset=4.0, gradient_slope=0.0, learning_rate=alpha, noise_energy=0.3,
        participation=Participation(np.zeros(rounds), np.zeros(rounds)),
    )  # fmt: skip
    found = task.stationarity
    assert found.measured == pytest.approx(1.0)
    assert found.bound == pytest.approx(float(theorem.total))
    assert found.worst == pytest.approx(float(theorem.total))


def test_steps_that_are_far_too_long_promise_nothing() -> None:
    task = task_bound()
    wild = TaskBound(0, 0, 9, 1e3, 0.0, task.curvature, task.measures)
    assert not wild.promised.any()
    assert wild.stationarity.bound > 1e3 * wild.stationarity.measured


def test_users_are_put_together_as_the_stations_do() -> None:
    rng = np.random.default_rng(2)
    samples, member = np.array([2.0, 3.0, 4.0, 5.0]), np.array([True, True, False, False])
    served = np.array([True, False, True, False])
    sums, clipped = rng.standard_normal((4, D)), rng.standard_normal((4, D))
    before, rate = rng.standard_normal(D), 0.1
    clean = before - rate * clipped[served] / samples[served, None]
    after = np.average(clean, axis=0, weights=samples[served]) - rate * 0.5
    found = measure_users(
        loss=1.0, next_loss=0.9, samples=samples, member=member, served=served, sums=sums, clipped_sums=clipped,
        before=before, clean=clean, after=after, learning_rate=rate, noise_std=np.full(4, 0.2), largest=1.0,
    )  # fmt: skip
    step = (clipped[0] + clipped[2]) / 6.0
    assert found.gradient[0] == pytest.approx(np.linalg.norm((sums[0] + sums[1]) / 5.0))
    assert found.length[0] == pytest.approx(np.linalg.norm(step))
    assert found.missing[0] == pytest.approx(np.linalg.norm(clipped[0] / 2.0 - (clipped[0] + clipped[1]) / 5.0))
    assert found.wrong[0] == pytest.approx(np.linalg.norm(step - clipped[0] / 2.0))
    assert found.noise[0] == pytest.approx(0.5 * np.sqrt(D))
    assert found.noise_energy[0] == pytest.approx(D * 0.04 * (4.0 + 16.0) / 36.0)
    assert (found.missing_share[0], found.wrong_share[0]) == (pytest.approx(0.6), pytest.approx(4 / 6))


def test_rounds_without_anybody_do_not_count_as_steps() -> None:
    nothing, gradient = np.zeros(2), np.array([1.0, 2.0])
    idle = measure_step(
        loss=2.0, next_loss=2.0, gradient=gradient, clipped=gradient, right=nothing, served=nothing, taken=nothing,
        moved=nothing, group_samples=10, right_samples=0, served_samples=0, largest=3.0, noise_energy=0.0,
    )  # fmt: skip
    record = RunBound([TaskBound(0, 0, 10, 5.0, 0.0, Curvature(2.0, 1.0, "bound"), idle)]).to_dict()
    assert (record["steps"], record["looseness_median"], record["promised_steps"]) == (0, None, 0)
    assert record["accumulated_looseness"] == pytest.approx(1.0)  # even at ten times 1 / L
