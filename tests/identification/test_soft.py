from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from covey.identification.noisy_max import NoisyMax
from covey.identification.soft import Soft, mixture_shares, model_losses, responsibilities
from covey.scenario import load_scenario
from covey.simulation import Simulation, simulate

QUICK = load_scenario("quick", ["clustering.rule=soft"])
NOISY = load_scenario("quick", ["clustering.rule=soft", "privacy.identity=noisy_max"])


def likelihood(losses: np.ndarray, shares: np.ndarray) -> float:
    return float(np.log((shares * np.exp(-losses)).sum(axis=1)).mean())


def test_responsibilities_by_hand() -> None:
    losses, shares = np.array([[0.0, np.log(3.0)], [1.0, 1.0]]), np.array([0.25, 0.75])
    np.testing.assert_allclose(responsibilities(losses, shares), [[0.5, 0.5], [0.25, 0.75]])


def test_shares_are_the_most_likely_ones() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        losses = rng.exponential(2.0, (80, 3))
        found = mixture_shares(losses)
        assert found.sum() == pytest.approx(1.0)

        def bad(free: np.ndarray, losses: np.ndarray = losses) -> float:
            shares = np.exp(np.append(free, 0.0))
            return -likelihood(losses, shares / shares.sum())

        assert likelihood(losses, found) >= -minimize(bad, np.zeros(2)).fun - 1e-5


def test_shares_of_samples_that_come_from_two_tasks_are_theirs() -> None:
    rng = np.random.default_rng(0)
    source = rng.choice(3, size=3000, p=[0.7, 0.3, 0.0])
    losses = np.where(np.arange(3) == source[:, None], 0.1, 4.0)
    np.testing.assert_allclose(mixture_shares(losses), np.bincount(source, minlength=3) / 3000, atol=0.02)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([[np.nan, 1.0]], [0.0, 1.0]),
        ([[np.inf, np.nan]], [0.5, 0.5]),
        ([[1e9, 1e9]], [0.5, 0.5]),
        ([[0.0, 1e4], [1e4, 0.0]], [0.5, 0.5]),
        ([[2.0]], [1.0]),
    ],
)
def test_losses_at_the_edge(losses: list[list[float]], expected: list[float]) -> None:
    np.testing.assert_allclose(mixture_shares(np.array(losses)), expected)


def test_one_sample_moves_private_scores_by_no_more_than_the_width() -> None:
    rng = np.random.default_rng(0)
    width, even = Soft(QUICK).score_width(replaced=True), np.full(4, 0.25)
    for _ in range(200):
        losses = rng.exponential(5.0, (10, 4))
        other = losses.copy()
        other[0] = rng.choice([0.0, 1.0, 1e9, np.nan, np.inf], 4)
        moved = np.abs(responsibilities(losses, even).sum(axis=0) - responsibilities(other, even).sum(axis=0))
        assert moved.max() <= width + 1e-12


def test_tasks_are_drawn_by_their_shares() -> None:
    with Simulation(QUICK, rounds=1) as simulation:
        simulation.play()
        compute = simulation.world.engine._work
        rule = simulation.world.rule
        drawn = np.array([rule.tell(compute, [0], number, 0, 1)[0] for number in range(2000)])
        x, y = compute.batch_of(0, 0, 0, "identify_batch")
        shares = mixture_shares(model_losses(compute, x, y))
        # Five standard deviations.
        assert np.abs(np.bincount(drawn, minlength=4) / 2000 - shares).max() < 5 * np.sqrt(0.25 / 2000)


def test_announcements_are_labelled_or_charged_and_bits_do_not_depend_on_workers() -> None:
    raw, noisy = simulate(QUICK, rounds=4), simulate(NOISY, rounds=4)
    assert (raw.ledger.unprotected == 3).all()
    assert not noisy.ledger.unprotected.any()
    np.testing.assert_allclose(noisy.ledger.spent["identity"], 3 * NOISY.privacy.identity_rho)
    for scenario, one in ((QUICK, raw), (NOISY, noisy)):
        two = simulate(scenario, rounds=4, workers=2)
        np.testing.assert_array_equal(one.user_column("identity"), two.user_column("identity"))
        np.testing.assert_array_equal(one.models, two.models)


def test_the_noise_is_that_of_scores_between_0_and_1() -> None:
    rule = Soft(NOISY)
    assert isinstance(rule.announcement, NoisyMax)
    rho = NOISY.privacy.identity_rho
    np.testing.assert_allclose(rule.announcement.scale(np.array([50, 100])), 1 / np.array([50, 100]) / np.sqrt(2 * rho))
