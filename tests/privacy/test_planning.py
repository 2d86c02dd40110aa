from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.allocation import noise_levels
from covey.errors import ScenarioError
from covey.privacy import epsilon, release_rho
from covey.privacy.planning import (
    MOST_ROUNDS,
    SMALLEST_DELTA,
    Releases,
    delta_for,
    noise_for,
    rounds_within,
    solve,
    worst_user,
)
from covey.seeding import generator

METHODS = ("exact", "zcdp", "simple")
methods = st.sampled_from(METHODS)
deltas = st.sampled_from([1e-3, 1e-5, 1e-9])
releases = st.builds(
    Releases,
    clip=st.floats(0.01, 100),
    adjacency=st.sampled_from(["replace_one", "add_remove"]),
    uploads=st.sampled_from([1, 2]),
)


@settings(max_examples=60)
@given(releases=releases, rounds=st.integers(1, 10_000), target=st.floats(0.05, 50), delta=deltas, method=methods)
def test_the_noise_for_an_epsilon_has_that_epsilon(releases, rounds, target, delta, method) -> None:
    plan = solve(releases, rounds=rounds, epsilon=target, delta=delta, method=method)
    reached = plan.epsilon_by(method)
    assert reached <= target
    assert reached == pytest.approx(target, abs=1e-6)
    assert plan.noise_std == plan.by_method[method]


@settings(max_examples=60)
@given(
    releases=releases,
    multiplier=st.floats(0.5, 1e4),
    target=st.floats(0.05, 50),
    delta=deltas,
    method=methods,
    identity_rho=st.sampled_from([0.0, 1e-3]),
    announcements=st.sampled_from([None, 3]),
)
def test_the_rounds_fit_and_one_more_does_not(
    releases, multiplier, target, delta, method, identity_rho, announcements
) -> None:
    if identity_rho and method == "exact":
        method = "zcdp"
    releases = Releases(releases.clip, releases.adjacency, releases.uploads, identity_rho, 2, 4, announcements)
    noise_std = multiplier * releases.clip
    most = rounds_within(releases, noise_std, target, delta, method)
    assert epsilon(releases.rho(most, noise_std), delta, method) <= target
    assert epsilon(releases.rho(most + 1, noise_std), delta, method) > target


@settings(max_examples=100)
@given(rho=st.floats(1e-4, 20), delta=st.floats(-12, -1).map(lambda power: 10**power), method=methods)
def test_delta_is_the_inverse_of_epsilon(rho, delta, method) -> None:
    value = epsilon(rho, delta, method)
    if value > 0:
        assert delta_for(rho, value, method) == pytest.approx(delta, rel=1e-6)


@settings(max_examples=50)
@given(rho=st.floats(1e-3, 5), target=st.floats(0.1, 20))
def test_deltas_are_ordered_like_the_formulas(rho, target) -> None:
    exact, zcdp, simple = (delta_for(rho, target, method) or 1.0 for method in METHODS)
    assert exact <= zcdp * (1 + 1e-9) <= simple * (1 + 1e-9)


def test_exact_delta_is_the_largest_gap_between_neighbours() -> None:
    # Brute force: sup over events of P(event) - exp(eps) Q(event) for N(m, 1) against N(0, 1), on a fine grid.
    rho, target = 0.4, 1.3
    shift = math.sqrt(2 * rho)
    x = np.linspace(-12, 12, 400_001)
    density = np.exp(-((x - shift) ** 2) / 2) - math.exp(target) * np.exp(-(x**2) / 2)
    gap = np.maximum(density, 0).sum() * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    assert delta_for(rho, target, "exact") == pytest.approx(gap, rel=1e-6)


def test_extreme_deltas() -> None:
    assert delta_for(1e-6, 50.0, "exact") == SMALLEST_DELTA
    assert delta_for(0.0, 1.0, "zcdp") == SMALLEST_DELTA
    for method in METHODS:
        assert delta_for(1e6, 0.01, method) is None
    assert delta_for(2.0, 1.0, "simple") is None
    assert 0.5 < delta_for(2.0, 0.1, "exact") < 1


@pytest.mark.parametrize("asked", ["rounds", "noise_std", "epsilon", "delta"])
def test_each_question_gives_a_plan_that_answers_the_other_three(asked: str) -> None:
    first = solve(Releases(), rounds=40, noise_std=25.0, delta=1e-5)
    values = {"rounds": 40, "noise_std": 25.0, "epsilon": first.epsilon, "delta": 1e-5}
    known = {name: value for name, value in values.items() if name != asked}
    if asked == "rounds":
        known["epsilon"] *= 1 + 1e-12  # the limit itself is met exactly by 40 rounds, up to rounding
    plan = solve(Releases(), **known)
    assert plan.asked == asked
    assert getattr(plan, asked) == pytest.approx(values[asked], rel=1e-9)
    assert plan.to_dict()["answer"] == getattr(plan, asked)


def test_adjacency_and_uploads_scale_the_cost() -> None:
    base = Releases(clip=2.0).upload_rho(8.0)
    assert base == pytest.approx(float(release_rho(2.0, 8.0)))
    assert Releases(clip=2.0, adjacency="add_remove").upload_rho(8.0) == pytest.approx(base / 4)
    assert Releases(clip=2.0, uploads=2).upload_rho(8.0) == pytest.approx(2 * base)


def test_announcements_are_counted_by_their_schedule() -> None:
    assert [Releases(identity_rho=0.1).announced(t) for t in (0, 1, 2, 10)] == [0, 1, 2, 10]
    assert Releases(identity_rho=0.1, announcements=3).announced(10) == 3
    covey = Releases(identity_rho=0.1, first_announcement=2, announce_every=3)
    assert [covey.announced(t) for t in (1, 2, 4, 5, 8)] == [0, 1, 1, 2, 3]
    assert Releases().announced(10) == 0
    assert covey.rho(5, 10.0) == pytest.approx(5 * covey.upload_rho(10.0) + 0.2)


def test_announcements_leave_the_exact_formula_out() -> None:
    noisy = Releases(identity_rho=0.02, announcements=5)
    plan = solve(noisy, rounds=50, epsilon=4.0, delta=1e-5)
    assert plan.method == "zcdp"
    assert plan.by_method["exact"] is None
    assert plan.epsilon_by("exact") is None
    assert plan.epsilon_by("zcdp") == pytest.approx(4.0, abs=1e-6)
    assert plan.noise_std > solve(Releases(), rounds=50, epsilon=4.0, delta=1e-5, method="zcdp").noise_std
    with pytest.raises(ScenarioError, match="Gaussian releases alone"):
        solve(noisy, rounds=50, epsilon=4.0, delta=1e-5, method="exact")
    assert solve(Releases(identity_rho=0.02, announcements=0), rounds=50, epsilon=4.0, delta=1e-5).method == "exact"


def test_curves_follow_the_plan() -> None:
    plan = solve(Releases(), rounds=100, noise_std=25.0, delta=1e-5)
    curve = plan.curve("zcdp", [0, 50, 100])
    assert curve[0] == 0.0
    assert (np.diff(curve) > 0).all()
    assert curve[-1] == plan.by_method["zcdp"]


def test_nobody_can_pay_more_than_the_worst_user() -> None:
    rng = generator(0, "samples")
    tight = []
    for _ in range(300):
        samples = rng.integers(20, 20 + rng.integers(1, 600), size=rng.integers(1, 12))
        tasks = rng.integers(-1, 3, size=len(samples))
        v_max, n_min, clip = 10 ** rng.uniform(-1, 2), 10 ** rng.uniform(0, 3.5), 10 ** rng.uniform(-1, 1)
        user, norm, least = worst_user(samples, clip, v_max, n_min)
        bound = float(release_rho(norm, least))
        served = tasks >= 0
        norms = clip * samples.mean() / samples
        std = noise_levels(samples, tasks, v_max, n_min, tasks=3).std
        assert (release_rho(norms[served], std[served]) <= bound * (1 + 1e-9)).all()
        alone = np.where(np.arange(len(samples)) == user, 0, -1)
        std = noise_levels(samples, alone, v_max, n_min).std
        tight.append(float(release_rho(norms[user], std[user])) / bound)
    np.testing.assert_allclose(tight, 1.0)  # and alone in its task it pays exactly that


def test_very_many_rounds_are_capped() -> None:
    plan = solve(Releases(), noise_std=1e20, epsilon=1.0, delta=1e-5)
    assert plan.rounds == MOST_ROUNDS
    big = solve(Releases(), noise_std=1e6, epsilon=1.0, delta=1e-5, method="zcdp")
    assert 10**9 < big.rounds < MOST_ROUNDS
    assert big.epsilon_by("zcdp") <= 1.0 < big.epsilon_by("zcdp", big.rounds + big.rounds // 10**9)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rounds": 5}, "give three of rounds"),
        ({"rounds": 5, "noise_std": 1.0, "epsilon": 1.0, "delta": 1e-5}, "give three of rounds"),
        ({"rounds": 0, "noise_std": 1.0, "delta": 1e-5}, "number of rounds is 0"),
        ({"rounds": 5, "noise_std": -1.0, "delta": 1e-5}, "the noise is -1"),
        ({"rounds": 5, "noise_std": math.nan, "delta": 1e-5}, "the noise is nan"),
        ({"rounds": 5, "noise_std": 1.0, "delta": 1.0}, "delta is 1"),
        ({"rounds": 5, "noise_std": 1.0, "delta": 0.0}, "delta is 0"),
        ({"rounds": 5, "epsilon": 0.0, "delta": 1e-5}, "epsilon is 0"),
        ({"rounds": 5, "epsilon": math.inf, "delta": 1e-5}, "epsilon is inf"),
        ({"rounds": 5, "noise_std": 1e-9, "delta": 1e-5}, "protects nothing"),
        ({"noise_std": 0.05, "epsilon": 2.0, "delta": 1e-5}, "not even one round fits"),
        ({"rounds": 100, "noise_std": 0.01, "epsilon": 1.0}, "at no delta below 1"),
    ],
)
def test_impossible_questions_get_one_sentence(given: dict[str, float], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        solve(Releases(), **given)


def test_the_noise_that_a_refusal_names_is_enough_for_one_round() -> None:
    with pytest.raises(ScenarioError, match=r"at least (\d\S+), or raise epsilon") as refusal:
        solve(Releases(clip=3.0), noise_std=0.05, epsilon=2.0, delta=1e-5)
    named = float(str(refusal.value).split("at least ")[1].split(",")[0])
    assert solve(Releases(clip=3.0), noise_std=named, epsilon=2.0, delta=1e-5).rounds == 1
    assert named == pytest.approx(noise_for(Releases(clip=3.0), 1, 2.0, 1e-5, "exact"), rel=2e-4)


def test_announcements_that_cost_more_than_the_limit_are_refused() -> None:
    with pytest.raises(ScenarioError, match="100 announcements of identities alone cost"):
        solve(Releases(identity_rho=0.2), rounds=100, epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize(
    ("values", "words"),
    [({"clip": 0.0}, "clipping norm is 0"), ({"identity_rho": -1.0}, "cost of an announcement"),
     ({"identity_rho": 0.1, "announcements": -1}, "number of announcements is -1")],
)  # fmt: skip
def test_releases_refuse_what_cannot_be(values: dict[str, float], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        Releases(**values)
