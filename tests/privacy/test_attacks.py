from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from tests.privacy import mutants
from tests.privacy.mutants import Samples

from covey.allocation import noise_levels
from covey.data import load_dataset, partition
from covey.federated import Engine, clipped_gradient_sum, initial_weights, load_flat
from covey.privacy import ReplayNoise, epsilon, rho_for_epsilon
from covey.privacy.attacks import (
    advantage,
    advantage_bound,
    correlations,
    counted_interval,
    epsilon_lower_bound,
    gaussian_advantage_bound,
    invert_softmax,
    match_softmax,
    softmax_gradients,
)
from covey.scenario import load_scenario
from covey.seeding import generator
from covey.simulation.world import clipping_norms

PIXELS = 64
#: Standard deviation of the correlation between an image and white noise.
CHANCE = 1 / math.sqrt(PIXELS - 1)


# Gradient inversion: what one user's upload of a single sample shows, as if all its other samples were known.


class Inversion:
    """Uploads of 20 single samples of each user of `paper_digits`, and what an attacker makes of them."""

    def __init__(self) -> None:
        scenario = load_scenario("paper_digits")
        dataset = load_dataset(scenario.data, groups=scenario.groups, seed=0)
        data = partition(dataset, scenario, 0)
        privacy = scenario.privacy
        levels = noise_levels(data.samples, data.groups, privacy.v_max, privacy.n_min)
        self.learning_rate = scenario.training.learning_rate
        self.clip = clipping_norms(scenario, data.samples).repeat(20)
        self.noise_std = levels.std.repeat(20)
        self.models = initial_weights(mutants.module(), 1, seed=0)
        x, y = mutants.digits()
        self.x, self.y = x[: len(self.clip)], y[: len(self.clip)]
        self.images = self.x.reshape(len(self.x), PIXELS)
        gradients = [softmax_gradients(self.models, *sample)[0] for sample in zip(self.x, self.y, strict=True)]
        self.expected = np.stack(gradients)

    def gradients(self, clip: np.ndarray, noise_std: np.ndarray, round: int = 0) -> np.ndarray:
        """The noised gradients, (n, D), that the uploads of a round show."""
        everyone = np.arange(len(self.x))
        users = mutants.joined([(self.x[i : i + 1], self.y[i : i + 1]) for i in everyone])
        with Engine(mutants.module(), users, tasks=1, seed=0, noise=ReplayNoise(0)) as engine:
            engine.publish(self.models, self.models)
            uploads = engine.train(
                round, everyone, 0 * everyone, clip, noise_std, learning_rate=self.learning_rate, batch=0
            ).uploads
        return (self.models - uploads.astype(np.float64)) / self.learning_rate


@pytest.fixture(scope="module")
def inversion() -> Inversion:
    return Inversion()


@pytest.mark.parametrize("clipped", [False, True])
def test_without_noise_a_single_sample_is_read_off_its_gradient_clipped_or_not(
    inversion: Inversion, clipped: bool
) -> None:
    clip = inversion.clip if clipped else np.full(len(inversion.x), math.inf)
    found = inversion.gradients(clip, np.zeros(len(inversion.x)))
    if clipped:
        assert (np.linalg.norm(inversion.expected, axis=1) > inversion.clip).all()
    assert correlations(invert_softmax(found, PIXELS), inversion.images).min() > 0.99
    assert correlations(match_softmax(found, inversion.expected, PIXELS), inversion.images).min() > 0.99


def test_with_the_noise_of_the_paper_a_single_sample_is_not_recovered(inversion: Inversion) -> None:
    assert 2.5 < inversion.noise_std.min() <= inversion.noise_std.max() < 4.5
    rounds = [inversion.gradients(inversion.clip, inversion.noise_std, number) for number in range(5)]
    found = np.concatenate(rounds)
    expected, images = (np.tile(rows, (5, 1)) for rows in (inversion.expected, inversion.images))
    read = correlations(invert_softmax(found, PIXELS), images)
    best = correlations(match_softmax(found, expected, PIXELS), images)
    # The quotient has a random sign, so its mean is 0; the matched filter keeps C / (std x sqrt(pixels)), about 0.04.
    assert abs(read.mean()) < 4 * CHANCE / math.sqrt(len(read))
    assert abs(best.mean() - (inversion.clip / inversion.noise_std).mean() / math.sqrt(PIXELS)) < 0.02
    # Both look like white noise: that of the right spread, and no sample is an exception.
    assert max(read.std(), best.std()) < 1.1 * CHANCE
    assert max(np.abs(read).max(), np.abs(best).max()) < 5 * CHANCE


def test_noise_has_to_be_large_to_stop_inversion(inversion: Inversion) -> None:
    little = inversion.gradients(inversion.clip, 0.01 * inversion.noise_std)
    assert correlations(match_softmax(little, inversion.expected, PIXELS), inversion.images).mean() > 0.9


# Membership inference: many shadow users train with a canary among their samples, or with its replacement.

EPSILON, DELTA, ROUNDS, CLIP = 0.5, 1e-5, 2, 1.0


def canaries() -> dict[str, tuple[tuple[np.ndarray, int], tuple[np.ndarray, int]]]:
    """A sample and its replacement: as easy to tell apart as can be, and a digit with a wrong or its own label."""
    x, y = mutants.digits()
    bright = np.full_like(x[0], 4.0)
    return {"mirrored": ((bright, 0), (-bright, 0)), "mislabelled": ((x[0], (int(y[0]) + 5) % 10), (x[0], int(y[0])))}


def membership_scores(canary: str, shadows: int, noise_std: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores of `shadows` users with the canary and as many without, each training a model of its own for all rounds.

    The attacker sees every upload, knows the canary and its replacement, and adds up how far each step
    went along the difference of their clipped gradients at the model that the step began with.
    """
    member, other = canaries()[canary]
    x, y = mutants.digits()
    rng = generator(0, "bootstrap")
    users: list[Samples] = []
    for shadow in range(2 * shadows):
        rows = 1 + rng.choice(len(y) - 1, 20, replace=False)
        users.append(mutants.replaced((x[rows], y[rows]), *(member if shadow < shadows else other)))
    everyone, scores = np.arange(len(users)), np.zeros(len(users))
    models = np.zeros((len(users), mutants.WEIGHTS), np.float32)
    clip, std = np.full(len(users), CLIP), np.full(len(users), noise_std)
    with Engine(mutants.module(), mutants.joined(users), tasks=len(users), seed=0, noise=ReplayNoise(1)) as engine:
        for number in range(ROUNDS):
            engine.publish(models, models)
            uploads = engine.train(number, everyone, everyone, clip, std, learning_rate=0.3, batch=0).uploads
            along = softmax_gradients(models, *member, CLIP) - softmax_gradients(models, *other, CLIP)
            scores += ((models.astype(np.float64) - uploads) * along).sum(axis=1)
            models = uploads
    return scores[:shadows], scores[shadows:]


@pytest.mark.parametrize("canary", canaries())
def test_without_noise_members_are_told_from_others(canary: str) -> None:
    found = advantage(*membership_scores(canary, 400, 0.0), alpha=0.01)
    assert found.low > advantage_bound(EPSILON, DELTA)


@pytest.mark.parametrize("canary", canaries())
def test_with_noise_the_advantage_stays_below_what_epsilon_allows(canary: str) -> None:
    rho = rho_for_epsilon(EPSILON, DELTA, "exact")
    noise_std = math.sqrt(ROUNDS * (2 * CLIP) ** 2 / (2 * rho))
    found = advantage(*membership_scores(canary, 1200, noise_std), alpha=0.01)
    assert advantage_bound(EPSILON, DELTA) == pytest.approx(0.2449, abs=1e-4)
    assert found.high < advantage_bound(EPSILON, DELTA)
    assert found.low < gaussian_advantage_bound(math.sqrt(2 * rho))


# The attacks themselves.


def test_expected_gradients_are_those_of_the_learning_package() -> None:
    x, y = mutants.own_samples(3)
    models = initial_weights(mutants.module(), 2, seed=4)
    for clip in (math.inf, 0.7):
        for model, found in zip(models, softmax_gradients(models, x[1], int(y[1]), clip), strict=True):
            load_flat(mutants.module(), model)
            real = clipped_gradient_sum(mutants.module(), *mutants.tensors((x[1:2], y[1:2])), clip).total
            np.testing.assert_allclose(found, real.numpy(), rtol=1e-4, atol=1e-6)


def test_bounds_of_the_advantage() -> None:
    assert advantage_bound(0.0, 1e-3) == pytest.approx(1e-3)
    assert advantage_bound(1.0, 0.0) == pytest.approx((math.e - 1) / (math.e + 1))
    assert advantage_bound(math.inf, 1e-5) == 1.0
    assert advantage_bound(0.1, 0.9) <= 1.0
    for mu in (0.1, 1.0, 3.0):
        curve = min(advantage_bound(epsilon(mu**2 / 2, delta), delta) for delta in (1e-5, 1e-3, 1e-2, 0.1, 0.3))
        assert gaussian_advantage_bound(mu) <= curve + 1e-12


def test_the_counted_interval_is_clopper_and_pearsons() -> None:
    for hits, trials in ((0, 20), (3, 20), (20, 20), (500, 1000)):
        exact = stats.binomtest(hits, trials).proportion_ci(0.99, method="exact")
        np.testing.assert_allclose(counted_interval(hits, trials, 0.01), (exact.low, exact.high), atol=1e-9)


def test_counting_finds_an_epsilon_below_the_true_one_and_catches_a_false_claim() -> None:
    rng = np.random.default_rng(0)
    for mu in (0.0, 1.0, 2.0):
        found = epsilon_lower_bound(rng.standard_normal(4000), rng.standard_normal(4000) + mu, 1e-5)
        assert 0 <= found <= epsilon(mu**2 / 2, 1e-5)
        # The order of the two does not matter.
        turned = epsilon_lower_bound(rng.standard_normal(4000) + mu, rng.standard_normal(4000), 1e-5)
        assert turned == pytest.approx(found, abs=0.6)
    assert found > 1.5
    assert epsilon_lower_bound(np.zeros(2000), np.ones(2000), 1e-5) > 4


def test_the_advantage_of_separate_and_of_equal_scores() -> None:
    rng = np.random.default_rng(0)
    apart = advantage(rng.random(200) + 1, rng.random(200), alpha=0.01)
    assert apart.value > 0.9
    assert apart.low > 0.8
    equal = advantage(rng.random(2000), rng.random(2000), alpha=0.01)
    assert equal.low < 0 < equal.high < 0.2
    with pytest.raises(ValueError, match="at least 4"):
        advantage(np.ones(3), np.ones(50))


def test_correlations_of_constant_rows_are_zero_and_shapes_are_checked() -> None:
    np.testing.assert_allclose(correlations([[1, 1], [1, 2]], [[1, 2], [2, 1]]), [0, -1])
    with pytest.raises(ValueError, match="multiples of 65"):
        invert_softmax(np.ones((1, 649)), PIXELS)
