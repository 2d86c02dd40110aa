from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from covey.allocation import JointProblem, block_coordinate_descent, sequential_allocation

from .conftest import make_instance

GAMMA = 2e7


def joint(seed: int, **changes: object) -> JointProblem:
    instance = make_instance(seed)
    problem = JointProblem(
        gains=instance.gains,
        selected=instance.selection(np.random.default_rng(seed)),
        samples=instance.samples.astype(float),
        identities=instance.identities,
        radio=instance.radio,
        v_max=12.0,
        n_min=100.0,
        leakage_weight=GAMMA,
    )
    return replace(problem, **changes)


def everybody_served(seed: int, **changes: object) -> JointProblem:
    """A selection of which the sequential method serves everybody."""
    problem = joint(seed)
    served = sequential_allocation(problem).block >= 0
    return joint(seed, selected=problem.selected & served, **changes)


def thresholds(problem: JointProblem, noise_std: np.ndarray) -> np.ndarray:
    return np.cbrt(problem.leakage_weight / noise_std**2)


@pytest.mark.parametrize("seed", range(10))
def test_equals_the_sequential_method_where_every_user_is_worth_its_leakage(seed: int) -> None:
    problem = everybody_served(seed)
    sequential = sequential_allocation(problem)
    served = sequential.block >= 0
    assert np.all(problem.samples[served] > thresholds(problem, sequential.noise_std[served]))
    descent = block_coordinate_descent(problem)
    np.testing.assert_array_equal(descent.block >= 0, served)
    np.testing.assert_allclose(descent.noise_std, sequential.noise_std, rtol=1e-12)
    assert descent.objective == pytest.approx(sequential.objective, rel=1e-12)
    assert descent.passes == 2


def test_drops_users_below_the_threshold_and_gains_by_it() -> None:
    dropped = 0
    for seed in range(10):
        # (1e9 / 12)^(1/3) is 437 samples: some users of 200 to 600 are above it, some below.
        problem = everybody_served(seed, leakage_weight=1e9)
        sequential, descent = sequential_allocation(problem), block_coordinate_descent(problem)
        assert descent.objective <= sequential.objective * (1 + 1e-12)
        left_out = (sequential.block >= 0) & (descent.block < 0)
        dropped += left_out.sum()
        assert np.all(descent.noise_std[descent.block < 0] == 0)
    assert dropped > 10


def test_at_the_start_the_threshold_decides() -> None:
    # Alone in its task a user keeps std = sqrt(v_max), so that the threshold is exact: 118.56 samples.
    threshold = np.cbrt(GAMMA / 12.0)
    for samples, block in ((threshold * 0.999, -1), (threshold * 1.001, 0)):
        problem = joint(
            0, gains=np.array([[1e-9]]), selected=np.array([[True]]), samples=np.array([samples]),
            identities=np.array([0]),
        )  # fmt: skip
        assert block_coordinate_descent(problem).block.tolist() == [block]
        assert sequential_allocation(problem).block.tolist() == [0]


def test_objective_is_formula_30() -> None:
    problem = joint(4)
    result = sequential_allocation(problem)
    total = 0.0
    for i in range(12):
        if not problem.selected[:, i].any():
            continue
        if result.block[i] < 0:
            total += problem.samples[i]
        else:
            total += GAMMA / (problem.samples[i] * result.noise_std[i]) ** 2
    assert result.objective == pytest.approx(total / problem.samples.sum())


def test_descent_never_rises_and_stops() -> None:
    for seed in range(20):
        result = block_coordinate_descent(joint(seed, leakage_weight=3e8), max_passes=20)
        assert result.passes < 20
        one_pass = block_coordinate_descent(joint(seed, leakage_weight=3e8), max_passes=1)
        assert result.objective <= one_pass.objective


def test_nobody_selected() -> None:
    result = block_coordinate_descent(joint(0, selected=np.zeros((4, 12), dtype=bool)))
    assert result.objective == 0.0
    assert np.all(result.block == -1)
