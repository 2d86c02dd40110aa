from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from covey.allocation import leakage, noise_levels, noise_levels_interior_point

V_MAX = 12.0


def by_sorting(x: np.ndarray, v_max: float, n_min: float) -> np.ndarray:
    """Variances of one task: try every number of users on the floor, smallest first."""
    order = np.argsort(x)
    best = None
    for m in range(len(x)):
        on_floor, free = x[order[:m]], x[order[m:]]
        c = (v_max * x.sum() - np.sum(n_min**2 / on_floor)) / np.sum(free**-0.5)
        if c * np.sqrt(free[0]) >= n_min**2 * (1 - 1e-12):
            best = np.maximum((n_min / x) ** 2, c * x**-1.5)
            break
    assert best is not None
    return best


def assert_optimal(x: np.ndarray, std: np.ndarray, price: float, v_max: float, n_min: float) -> None:
    """The KKT conditions of one task, which decide a convex problem; all relative to the terms they compare."""
    cap = v_max * x.sum()
    assert np.sum(x * std**2) == pytest.approx(cap, rel=1e-12)
    assert np.all(x * std >= n_min * (1 - 1e-12))
    # Gain of more noise, 1 / (x^2 std^4), against its price: equal where free, smaller where on the floor.
    ratio = 1 / (x**3 * std**4) / price
    on_floor = x * std <= n_min * (1 + 1e-12)
    np.testing.assert_allclose(ratio[~on_floor], 1.0, rtol=1e-11)
    assert np.all(ratio[on_floor] <= 1 + 1e-11)


samples = st.lists(st.integers(1, 100_000), min_size=1, max_size=40)


@given(sizes=samples, share=st.floats(0, 0.999999))
def test_optimal_for_one_task(sizes: list[int], share: float) -> None:
    x = np.array(sizes, dtype=float)
    task = np.zeros(len(x), dtype=int)
    n_min = share * noise_levels(x, task, V_MAX, 0.0).best_floor[0]
    levels = noise_levels(x, task, V_MAX, n_min)
    assert levels.feasible.tolist() == [True]
    assert_optimal(x, levels.std, levels.price[0], V_MAX, n_min)
    np.testing.assert_allclose(levels.std**2, by_sorting(x, V_MAX, n_min), rtol=1e-10)


def test_without_floor_it_is_the_closed_form() -> None:
    x = np.array([200.0, 350.0, 600.0])
    levels = noise_levels(x, np.zeros(3, dtype=int), V_MAX, 0.0)
    np.testing.assert_allclose(levels.std**2, V_MAX * x.sum() * x**-1.5 / np.sum(x**-0.5), rtol=1e-14)


def test_tasks_do_not_touch_each_other_and_unserved_users_get_no_noise() -> None:
    rng = np.random.default_rng(0)
    x, task = rng.integers(20, 600, 200).astype(float), rng.integers(-1, 6, 200)
    task[task == 3] = 2  # a task without users
    levels = noise_levels(x, task, V_MAX, 60.0, tasks=7)
    assert np.all(levels.std[task < 0] == 0)
    for k in (0, 1, 2, 4, 5):
        alone = noise_levels(x[task == k], np.zeros((task == k).sum(), dtype=int), V_MAX, 60.0)
        np.testing.assert_allclose(levels.std[task == k], alone.std, rtol=1e-14)
        assert levels.price[k] == pytest.approx(alone.price[0])
    for empty in (3, 6):
        assert levels.feasible[empty]
        assert levels.price[empty] == 0.0
        assert np.isinf(levels.best_floor[empty])


def test_ties_get_equal_noise_and_one_user_takes_the_whole_cap() -> None:
    levels = noise_levels([300, 300, 300], [0, 0, 0], V_MAX, 100.0)
    np.testing.assert_allclose(levels.std, np.sqrt(V_MAX), rtol=1e-14)
    np.testing.assert_allclose(noise_levels([29], [0], V_MAX, 100.0).std, np.sqrt(V_MAX), rtol=1e-14)


def test_infeasible_task_gets_the_floor_and_is_flagged() -> None:
    # One user needs at least n_min / sqrt(v_max) = 28.9 samples.
    levels = noise_levels([28, 400], [0, 1], V_MAX, 100.0)
    assert levels.feasible.tolist() == [False, True]
    assert levels.std[0] == pytest.approx(100 / 28)
    assert np.isinf(levels.price[0])
    assert levels.best_floor[0] == pytest.approx(28 * np.sqrt(V_MAX))


def test_a_small_user_can_be_carried_by_a_large_one() -> None:
    assert not noise_levels([20], [0], V_MAX, 300.0).feasible.any()
    levels = noise_levels([20, 400], [0, 0], V_MAX, 300.0)
    assert levels.feasible.all()
    assert levels.std[0] == pytest.approx(300 / 20)
    assert levels.std[1] > 300 / 400
    assert np.sum(np.array([20, 400]) * levels.std**2) == pytest.approx(V_MAX * 420)


@given(sizes=samples)
def test_best_floor_separates_feasible_from_infeasible(sizes: list[int]) -> None:
    task = np.zeros(len(sizes), dtype=int)
    best = noise_levels(sizes, task, V_MAX, 1.0).best_floor[0]
    at_best = noise_levels(sizes, task, V_MAX, best)
    assert at_best.feasible.all()
    np.testing.assert_allclose(np.array(sizes) * at_best.std, best, rtol=1e-9)
    assert not noise_levels(sizes, task, V_MAX, best * (1 + 1e-9)).feasible.any()
    assert noise_levels(sizes, task, V_MAX, best * (1 - 1e-9)).feasible.all()


def test_price_is_the_derivative_of_the_leakage() -> None:
    x, task = np.array([50.0, 120.0, 400.0, 900.0]), np.zeros(4, dtype=int)
    low, high = (leakage(x, noise_levels(x, task, v, 150.0).std).sum() for v in (V_MAX * 0.9999, V_MAX * 1.0001))
    change = (low - high) / (0.0002 * V_MAX * x.sum())
    assert noise_levels(x, task, V_MAX, 150.0).price[0] == pytest.approx(change, rel=1e-6)


@settings(max_examples=60)
@given(sizes=samples, share=st.floats(0, 0.99), tasks=st.integers(1, 3))
def test_interior_point_agrees(sizes: list[int], share: float, tasks: int) -> None:
    task = np.arange(len(sizes)) % (tasks + 1) - 1
    assume(np.any(task >= 0))
    n_min = share * noise_levels(sizes, task, V_MAX, 0.0).best_floor.min()
    exact = noise_levels(sizes, task, V_MAX, n_min).std
    np.testing.assert_allclose(noise_levels_interior_point(sizes, task, V_MAX, n_min), exact, rtol=1e-7)


def test_interior_point_needs_an_interior() -> None:
    with pytest.raises(ValueError, match="task 0"):
        noise_levels_interior_point([28], [0], V_MAX, 100.0)


@pytest.mark.parametrize("spread", [1.0, 5.0, 30.0])
def test_large_and_wide_instances_stay_exact(spread: float) -> None:
    rng = np.random.default_rng(1)
    x, task = np.exp(rng.uniform(0, spread, 100_000)), rng.integers(0, 20, 100_000)
    n_min = 0.99 * noise_levels(x, task, V_MAX, 0.0).best_floor.min()
    levels = noise_levels(x, task, V_MAX, n_min)
    for k in range(20):
        mine = task == k
        assert_optimal(x[mine], levels.std[mine], levels.price[k], V_MAX, n_min)


def test_nobody_served() -> None:
    levels = noise_levels([5, 6], [-1, -1], V_MAX, 100.0, tasks=2)
    np.testing.assert_array_equal(levels.std, 0.0)
    assert levels.feasible.all()
    assert len(noise_levels([], [], V_MAX, 100.0).feasible) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0], [0], 12.0, 100.0), "positive"),
        (([np.nan], [0], 12.0, 100.0), "positive"),
        (([1.0, 2.0], [0], 12.0, 100.0), "same shape"),
        (([1.0], [0.5], 12.0, 100.0), "integers"),
        (([1.0], [0], 0.0, 100.0), "v_max"),
        (([1.0], [0], np.inf, 100.0), "v_max"),
        (([1.0], [0], 12.0, -1.0), "n_min"),
        (([1.0], [3], 12.0, 1.0, 2), "task 3"),
    ],
)
def test_wrong_input_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        noise_levels(*arguments)


def in_arrays(x: np.ndarray, task: np.ndarray, v_max: float, n_min: float, tasks: int) -> np.ndarray:
    """The levels of `noise_levels` by whole arrays instead of a loop over users."""

    def sums(values: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
        return np.bincount(group, weights=values, minlength=count)

    served = np.flatnonzero(task >= 0)
    size, k = x[served], task[served]
    inverse, slope = 1.0 / size, 1.0 / np.sqrt(size)
    floor, cap = n_min**2 * inverse, v_max * sums(size, k, tasks)
    feasible = n_min**2 * sums(inverse, k, tasks) <= cap * (1.0 + 1e-12)
    slopes = sums(slope, k, tasks)
    c = np.divide(cap, slopes, out=np.zeros(tasks), where=slopes > 0)
    low, count = np.zeros(len(k), dtype=bool), -1
    while np.count_nonzero(low) != count:
        count = np.count_nonzero(low)
        low |= c[k] <= floor / slope
        both = sums(np.where(low, floor, slope), k + tasks * low, 2 * tasks)
        np.divide(cap - both[tasks:], both[:tasks], out=c, where=both[:tasks] > 0)
    std = np.zeros(len(x))
    std[served] = np.sqrt(np.maximum(floor, np.where(feasible, c, 0.0)[k] * slope) * inverse)
    return std


@given(seed=st.integers(0, 2**32), users=st.integers(1, 30), tasks=st.integers(1, 6), n_min=st.floats(0, 5e3))
def test_networks_side_by_side_equal_single_ones_bit_by_bit(seed: int, users: int, tasks: int, n_min: float) -> None:
    rng = np.random.default_rng(seed)
    x, task = rng.integers(1, 1000, (3, users)), rng.integers(-1, tasks, (3, users))
    together = noise_levels(x, task, V_MAX, n_min, tasks)
    std, leaked = together.std, leakage(x, together.std)
    for network in range(3):
        alone = noise_levels(x[network], task[network], V_MAX, n_min, tasks)
        for name in ("std", "feasible", "price", "best_floor"):
            np.testing.assert_array_equal(getattr(together, name)[network], getattr(alone, name))
        np.testing.assert_array_equal(std[network], in_arrays(x[network], task[network], V_MAX, n_min, tasks))
        served = task[network] >= 0
        assert not leaked[network, ~served].any()
        np.testing.assert_array_equal(leaked[network, served], 1.0 / (x[network] * alone.std)[served] ** 2)


def test_networks_side_by_side_refuse_what_single_ones_refuse() -> None:
    x, task = np.full((2, 3), 5.0), np.zeros((2, 3), dtype=int)
    with pytest.raises(ValueError, match=r"same shape \(..., U\)"):
        noise_levels(x, task[:, 1:], V_MAX, 1.0, 1)
    with pytest.raises(ValueError, match="task 0 is beyond"):
        noise_levels(x, task, V_MAX, 1.0, 0)
    with pytest.raises(ValueError, match="v_max"):
        noise_levels(x, task, 0.0, 1.0, 1)
    with pytest.raises(ValueError, match="positive and finite"):
        noise_levels(0 * x, task, V_MAX, 1.0, 1)
    nobody = noise_levels(0 * x, task - 1, V_MAX, 1.0, 1)
    assert not nobody.std.any()
    assert not leakage(0 * x, nobody.std).any()
    with pytest.raises(ValueError, match="same shape"):
        leakage(x, nobody.std[:1])


def test_any_leading_axes_are_networks() -> None:
    rng = np.random.default_rng(0)
    x, task = rng.integers(1, 1000, (2, 3, 9)), rng.integers(-1, 4, (2, 3, 9))
    together = noise_levels(x, task, V_MAX, 50.0, 4)
    assert together.feasible.shape == (2, 3, 4)
    np.testing.assert_array_equal(together.std[1, 2], noise_levels(x[1, 2], task[1, 2], V_MAX, 50.0, 4).std)
    assert leakage(x, together.std).shape == (2, 3, 9)
