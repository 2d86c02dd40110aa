from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.theory import (
    Bound,
    Participation,
    long_run,
    participation,
    printed_proposition_1,
    printed_theorem_1,
    printed_theorem_2,
    proposition_1,
    stationarity,
    theorem_1,
    theorem_2,
)

HESSIAN = np.diag([1.0, 10.0])
CONSTANTS: dict[str, Any] = {"smoothness": 10.0, "convexity": 1.0}


def quadratic_gap(w: np.ndarray) -> float:
    return float(0.5 * w @ HESSIAN @ w)


def test_the_counterexample_to_the_printed_theorem() -> None:
    # All served, no errors, no noise: one exact gradient step of 1 / L from (1, 0).
    w = np.array([1.0, 0.0])
    after = w - HESSIAN @ w / 10.0
    true, gap = quadratic_gap(after), quadratic_gap(w)
    given = {"gradient_offset": 3.9, "gradient_slope": 0.1, "participation": Participation.perfect()}
    printed, corrected = printed_theorem_1(gap, **CONSTANTS, **given), theorem_1(gap, **CONSTANTS, **given)
    assert gap == pytest.approx(0.5)
    assert true == pytest.approx(0.405)
    assert printed.total == 0.0
    assert corrected.total == pytest.approx(0.45)


def test_the_counterexample_with_one_of_four_equal_users_missing() -> None:
    # Two samples per user, (sqrt 2, 0) and (0, sqrt 20) with target 0; equal users, so the step is the same.
    w = np.array([1.0, 0.0])
    rows = np.array([[np.sqrt(2.0), 0.0], [0.0, np.sqrt(20.0)]])
    gradients = rows * (rows @ w)[:, None]
    offset = (gradients**2).sum(axis=1).max() - 0.1 * (HESSIAN @ w) @ (HESSIAN @ w)
    assert offset == pytest.approx(3.9)
    given = {"gradient_offset": offset, "gradient_slope": 0.1}
    closed = Participation(np.array(0.25), np.array(0.0))
    assert printed_theorem_1(0.5, **CONSTANTS, **given, participation=closed).total == pytest.approx(0.3125)
    assert theorem_1(0.5, **CONSTANTS, **given, participation=closed).total == pytest.approx(0.65)
    tight = participation(8.0, 6.0, 6.0)
    assert tight.total == pytest.approx(1 / 16)
    assert 0.405 < theorem_1(0.5, **CONSTANTS, **given, participation=tight).total < 0.65


def test_without_errors_and_noise_the_bound_is_the_classical_contraction() -> None:
    smoothness, convexity = np.array([1.0, 5.0, 80.0]), np.array([1.0, 0.5, 0.1])
    bound = theorem_1(
        2.0,
        smoothness=smoothness,
        convexity=convexity,
        gradient_offset=7.0,
        gradient_slope=0.2,
        participation=Participation.perfect(),
    )
    np.testing.assert_allclose(bound.total, 2.0 * (1.0 - convexity / smoothness))
    assert bound.dominant.tolist() == ["none"] * 3


def test_each_cause_has_its_own_number() -> None:
    q = Participation(np.array(0.1), np.array(0.3))
    bound = theorem_2(
        1.0, smoothness=4.0, dominance=0.5, gradient_offset=2.0, gradient_slope=0.25, participation=q, slack=0.4,
        noise_energy=3.5, learning_rate=0.2,
    )  # fmt: skip
    assert bound.kept == pytest.approx(1.0 - 0.2 * 0.5 * 0.6)
    assert bound.missing == pytest.approx(2 * 0.2 * 2.0 * 0.1)
    assert bound.wrong == pytest.approx(2 * 0.2 * 2.0 * 0.3)
    assert bound.noise == pytest.approx(4.0 * 0.04 / 2 * 3.5)
    assert bound.slack == pytest.approx(0.1 * 0.6 * 0.4)
    assert bound.total == pytest.approx(bound.kept + bound.missing + bound.wrong + bound.noise + bound.slack)
    assert bound.dominant == "noise"


def test_printed_forms_are_those_of_the_text() -> None:
    size, mu, slope, offset, missing, gap, std, weights, eta = 6.0, 1.5, 0.1, 2.0, 0.4, 0.7, 0.05, 9, 0.3
    q1 = (size - mu + 4 * mu * slope) / size * missing
    base = 2 * offset * q1 / (size - mu + 4 * mu * slope) + weights**2 * std**2 / (2 * size) + q1 * gap
    q = Participation(np.array(missing), np.array(0.2))  # strangers do not enter the printed forms
    shared: dict[str, Any] = {
        "smoothness": size, "gradient_offset": offset, "gradient_slope": slope, "participation": q,
        "largest_noise_std": std, "weights": weights,
    }  # fmt: skip
    assert printed_theorem_1(gap, convexity=mu, **shared).total == pytest.approx(base)
    with_slack = base + eta * (1 - 4 * slope) * missing / (2 * size)
    assert printed_theorem_2(gap, dominance=mu, slack=eta, **shared).total == pytest.approx(with_slack)


def test_the_long_run_bound_is_the_fixed_point_of_one_step() -> None:
    given: dict[str, Any] = {
        "smoothness": 3.0, "dominance": 0.4, "gradient_offset": 1.3, "gradient_slope": 0.2, "slack": 0.1,
        "participation": Participation(np.array(0.2), np.array(0.1)), "noise_energy": 0.5, "learning_rate": 0.25,
    }  # fmt: skip
    limit = long_run(**given)
    assert theorem_2(limit.total, **given).total == pytest.approx(limit.total)
    gap = 10.0
    for _ in range(800):
        gap = float(theorem_2(gap, **given).total)
    assert gap == pytest.approx(float(limit.total))


def test_proposition_1_needs_less_than_printed() -> None:
    none, few, all_wrong = (Participation(np.array(q), np.array(0.0)) for q in (0.0, 0.2, 1.0))
    assert proposition_1(0.0, all_wrong)  # zeta_2 = 0 is allowed, and contracts
    assert not printed_proposition_1(0.0)
    assert proposition_1(1.0, few)  # a slope above 1/4 contracts when few are missing
    assert proposition_1(100.0, none)
    assert not proposition_1(0.25, all_wrong)
    slopes = np.linspace(0.001, 0.2499, 50)
    assert np.all(proposition_1(slopes, all_wrong))  # the printed condition is enough
    assert np.all(printed_proposition_1(slopes))


def test_stationarity_without_errors_is_the_classical_rate() -> None:
    perfect = Participation(np.zeros(20), np.zeros(20))
    bound = stationarity(3.0, smoothness=5.0, gradient_offset=1.0, gradient_slope=0.1, participation=perfect)
    assert bound.total == pytest.approx(2 * 5.0 * 3.0 / 20)


def test_stationarity_averages_the_causes_over_rounds() -> None:
    q = Participation(np.array([0.0, 0.2]), np.array([0.3, 0.0]))
    bound = stationarity(
        1.0, smoothness=2.0, gradient_offset=np.array([1.0, 3.0]), gradient_slope=0.5, participation=q,
        noise_energy=np.array([0.0, 4.0]), learning_rate=0.5,
    )  # fmt: skip
    left = 1.0 - 4 * 0.5 * 0.3
    assert bound.kept == pytest.approx(2.0 / (0.5 * 2) / left)
    assert bound.missing == pytest.approx(4 * 0.3 / left)
    assert bound.wrong == pytest.approx(4 * 0.15 / left)
    assert bound.noise == pytest.approx(2.0 * 0.5 * 2.0 / left)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rate": 0.3}, "at most 1 / smoothness"),
        ({"learning_rate": 0.0}, "above 0"),
        ({"smoothness": 0.0}, "smoothness must be above 0"),
        ({"convexity": 0.0}, "use stationarity"),
        ({"convexity": 11.0}, "at most the smoothness"),
        ({"gradient_slope": 1.0}, "4 zeta_2 Q must not exceed 1"),
        ({"gradient_slope": -0.1}, "must not exceed 1"),
    ],
)
def test_conditions_are_checked(change: dict[str, float], words: str) -> None:
    given: dict[str, Any] = {
        **CONSTANTS, "gradient_offset": 1.0, "gradient_slope": 0.1,
        "participation": Participation(np.array(0.5), np.array(0.2)),
    }  # fmt: skip
    with pytest.raises(ValueError, match=words):
        theorem_1(1.0, **{**given, **change})


def test_what_does_not_contract_has_no_long_run() -> None:
    given: dict[str, Any] = {"smoothness": 2.0, "gradient_offset": 1.0, "gradient_slope": 0.25}
    whole = Participation(np.array(1.0), np.array(0.0))
    with pytest.raises(ValueError, match="nothing contracts"):
        long_run(dominance=1.0, participation=whole, **given)
    with pytest.raises(ValueError, match="not bounded"):
        stationarity(1.0, participation=Participation(np.ones(3), np.zeros(3)), **given)
    with pytest.raises(ValueError, match="one value for each round"):
        stationarity(1.0, participation=whole, **given)


def test_a_bound_is_broadcast_and_summed() -> None:
    bound = Bound.of(kept=np.array([1.0, 2.0]), noise=0.5, wrong=np.array([0.0, 3.0]))
    assert bound.total.tolist() == [1.5, 5.5]
    assert bound.dominant.tolist() == ["noise", "wrong"]
    assert bound.summed([1.0, 2.0]).wrong == 6.0
    assert bound.summed().total == 7.0


shares = st.floats(0.0, 1.0)


@settings(max_examples=150)
@given(
    q=st.tuples(shares, shares), more=st.tuples(shares, shares), gap=st.floats(0.0, 1e3), mu=st.floats(1e-3, 1.0),
    rate=st.floats(0.01, 1.0), offset=st.floats(0.0, 1e3), slope=st.floats(0.0, 0.25), noise=st.floats(0.0, 1e3),
    extra=st.floats(0.0, 1e3), eta=st.floats(0.0, 10.0),
)  # fmt: skip
def test_more_trouble_never_lowers_the_bound(
    q: tuple[float, float], more: tuple[float, float], gap: float, mu: float, rate: float, offset: float, slope: float,
    noise: float, extra: float, eta: float,
) -> None:  # fmt: skip
    # With slack in (25), missing users weaken descent and the slack alike; the gap in (25) is at least eta / (2 mu).
    gap = max(gap, eta / (2.0 * mu))

    def bound(missing: float, wrong: float, energy: float) -> float:
        first = min(missing, 1.0)
        found = theorem_2(
            gap, smoothness=1.0, dominance=mu, gradient_offset=offset, gradient_slope=slope, slack=eta,
            participation=Participation(np.array(first), np.array(min(wrong, 1.0 - first))), noise_energy=energy,
            learning_rate=rate,
        )  # fmt: skip
        return float(found.total)

    missing, wrong = q[0], min(q[1], 1.0 - q[0])
    before = bound(missing, wrong, noise)
    room = 1e-9 * (1.0 + before)
    assert bound(missing, wrong, noise + extra) >= before - room
    assert bound(missing + more[0] * (1 - missing - wrong), wrong, noise) >= before - room
    assert bound(missing, wrong + more[1] * (1 - missing - wrong), noise) >= before - room
