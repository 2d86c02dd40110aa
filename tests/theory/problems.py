"""Random problems whose smoothness, dominance, optimum and expected next loss are known exactly.

Axes: I instances, O outcomes of the identification, U users (the first half is the group), S sample slots of
which each user fills some, D weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from covey.theory import Participation, expected_participation, noise_energy, participation

Array = NDArray[np.float64]
USERS, SLOTS, TASKS = 6, 5, 3


@dataclass(frozen=True)
class Setting:
    """Who takes part: samples, served and misidentified (I, U), noise_std (I, U) of mean gradients."""

    samples: Array
    served: Array
    misidentified: Array
    noise_std: Array

    @property
    def filled(self) -> NDArray[np.bool_]:
        """(I, U, S) which sample slots are used."""
        return np.arange(SLOTS) < self.samples[..., None]

    @property
    def member(self) -> Array:
        """(U,) 1 for users of the group."""
        return (np.arange(USERS) < USERS // 2).astype(float)

    def outcomes(self) -> tuple[Array, Array]:
        """(O, U) who steps for the task if served, and (I, O) how likely it is."""
        joins = np.array(list(product((0.0, 1.0), repeat=USERS)))
        inside = np.where(self.member == 1, 1.0 - self.misidentified, self.misidentified / (TASKS - 1))
        chance = np.where(joins == 1, inside[:, None], 1.0 - inside[:, None]).prod(axis=-1)
        return joins, chance

    def tight(self) -> Participation:
        """Q as an expectation over all outcomes, (I,)."""
        joins, chance = self.outcomes()
        stepping = self.samples[:, None] * self.served[:, None] * joins
        group = (self.samples * self.member).sum(axis=-1, keepdims=True)
        right = (stepping * self.member).sum(axis=-1)
        return participation(group, right, stepping.sum(axis=-1), probability=chance)

    def closed(self) -> Participation:
        """Q in closed form, (I,)."""
        return expected_participation(self.samples, self.member, self.served, self.misidentified, tasks=TASKS)

    def energy(self, weights: int) -> Array:
        """(I,) expected squared norm of the noise in the step."""
        joins, chance = self.outcomes()
        everyone = noise_energy(
            self.samples[:, None], self.served[:, None] * joins, self.noise_std[:, None], weights=weights
        )
        return (everyone * chance).sum(axis=-1)


@dataclass(frozen=True)
class Problem:
    """One step of many instances.

    gradients: (I, U, S, D) of all samples at w. gap: (I,). smoothness, dominance: (I,). expected_gap(steps (I, O, D),
    variance (I, O)) is the expected gap (I, O) after steps with isotropic noise of this variance per weight.
    """

    setting: Setting
    gradients: Array
    gap: Array
    smoothness: Array
    dominance: Array
    slack: Array
    expected_gap: Callable[[Array, Array], Array]

    @property
    def weights(self) -> int:
        return self.gradients.shape[-1]

    @property
    def full_gradient(self) -> Array:
        """(I, D) of the group's mean loss."""
        part = self.setting.filled * self.setting.member[:, None]
        return (self.gradients * part[..., None]).sum(axis=(1, 2)) / part.sum(axis=(1, 2))[:, None]

    def offset(self, slope: Array) -> Array:
        """(I,) the smallest zeta_1 for which no sample exceeds (19) at w."""
        squares = np.where(self.setting.filled, (self.gradients**2).sum(axis=-1), 0.0).max(axis=(1, 2))
        return squares - slope * (self.full_gradient**2).sum(axis=-1)

    def expected_next_gap(self, learning_rate: Array) -> Array:
        """(I,) the truth: the expectation over identification and noise."""
        setting = self.setting
        joins, chance = setting.outcomes()
        sums = (self.gradients * setting.filled[..., None]).sum(axis=2)
        stepping = setting.served[:, None] * joins
        total = (setting.samples[:, None] * stepping).sum(axis=-1)
        divisor = np.maximum(total, 1.0)
        mean = np.einsum("iou,iud->iod", stepping, sums) / divisor[..., None]
        variance = ((setting.samples * setting.noise_std)[:, None] ** 2 * stepping).sum(axis=-1) / divisor**2
        rate = learning_rate[:, None]
        after = self.expected_gap(-rate[..., None] * mean, rate**2 * variance)
        return (after * chance).sum(axis=-1)


#: Range of the chance to be served, and largest chance to be misidentified, by how much goes wrong.
TROUBLE: dict[str, tuple[float, float, float]] = {
    "none": (1.0, 1.0, 0.0),
    "little": (0.8, 1.0, 0.1),
    "much": (0.3, 1.0, 0.8),
}


def draw_setting(rng: np.random.Generator, instances: int, trouble: str, noise: float) -> Setting:
    low, high, wrong = TROUBLE[trouble]
    shape = (instances, USERS)
    return Setting(
        samples=rng.integers(1, SLOTS + 1, shape).astype(float),
        served=(rng.random(shape) < rng.uniform(low, high, (instances, 1))).astype(float),
        misidentified=wrong * rng.random(shape) * rng.random((instances, 1)),
        noise_std=noise * rng.random((instances, 1)) * rng.random(shape),
    )


def ridge(rng: np.random.Generator, instances: int, trouble: str, noise: float = 0.3) -> Problem:
    """Least squares with a ridge: strongly convex, everything exact through the Hessian."""
    weights = 4
    setting = draw_setting(rng, instances, trouble, noise)
    filled, member = setting.filled, setting.member
    x = rng.standard_normal((instances, USERS, SLOTS, weights)) * rng.uniform(0.3, 2.0, (instances, 1, 1, weights))
    truth = rng.standard_normal((instances, 2, weights))[:, (1 - member).astype(int)]
    y = np.einsum("iusd,iud->ius", x, truth) + 0.1 * rng.standard_normal((instances, USERS, SLOTS))
    penalty = rng.uniform(0.05, 0.5, instances)
    w = rng.standard_normal((instances, weights))
    residual = np.einsum("iusd,id->ius", x, w) - y
    gradients = x * residual[..., None] + (penalty[:, None] * w)[:, None, None]
    part = filled * member[:, None]
    count = part.sum(axis=(1, 2))
    hessian = np.einsum("iusd,iuse,ius->ide", x, x, part) / count[:, None, None]
    hessian += penalty[:, None, None] * np.eye(weights)
    values = np.linalg.eigvalsh(hessian)
    slope = np.einsum("iusd,ius->id", gradients, part) / count[:, None]
    away = np.linalg.solve(hessian, slope[..., None])[..., 0]  # w less the optimum

    def expected_gap(steps: Array, variance: Array) -> Array:
        there = away[:, None] + steps
        quadratic = 0.5 * np.einsum("iod,ide,ioe->io", there, hessian, there)
        return quadratic + 0.5 * variance * np.trace(hessian, axis1=1, axis2=2)[:, None]

    gap = expected_gap(np.zeros((instances, 1, weights)), np.zeros((instances, 1)))[:, 0]
    return Problem(setting, gradients, gap, values[:, -1], values[:, 0], np.zeros(instances), expected_gap)


def wavy(rng: np.random.Generator, instances: int, trouble: str, noise: float = 0.3) -> Problem:
    """s sum(w^2 + 3 sin(w)^2) plus linear parts that cancel in the group: not convex, dominated with mu = s / 32."""
    weights = 3
    setting = draw_setting(rng, instances, trouble, noise)
    scale = rng.uniform(0.2, 2.0, instances)
    w = rng.uniform(-3.0, 3.0, (instances, weights))
    linear = rng.standard_normal((instances, USERS, SLOTS, weights))
    part = (setting.filled * setting.member[:, None])[..., None]
    mean = (linear * part).sum(axis=(1, 2)) / part.sum(axis=(1, 2))
    pull = rng.standard_normal((instances, 1, 1, weights)) * (1 - setting.member)[:, None, None]
    linear = linear - np.where(setting.member[:, None, None] == 1, mean[:, None, None], 0.0) + 2.0 * pull
    gradients = (scale[:, None] * (2.0 * w + 3.0 * np.sin(2.0 * w)))[:, None, None] + linear

    def expected_gap(steps: Array, variance: Array) -> Array:
        there = w[:, None] + steps
        waves = 1.5 * (1.0 - np.cos(2.0 * there) * np.exp(-2.0 * variance)[..., None])
        return scale[:, None] * (there**2 + variance[..., None] + waves).sum(axis=-1)

    gap = expected_gap(np.zeros((instances, 1, weights)), np.zeros((instances, 1)))[:, 0]
    return Problem(setting, gradients, gap, 8.0 * scale, scale / 32.0, np.zeros(instances), expected_gap)


def cosines(rng: np.random.Generator, instances: int, trouble: str, noise: float = 0.3) -> Problem:
    """sum A (1 - cos(w - c)): maxima and minima; dominated only up to a slack of 4 mu sum(A R)."""
    weights = 3
    setting = draw_setting(rng, instances, trouble, noise)
    height = rng.uniform(0.3, 2.0, (instances, weights))
    centres = rng.standard_normal((instances, USERS, SLOTS, weights)) * 0.5
    centres += rng.uniform(-np.pi, np.pi, (instances, 2, 1, weights))[:, (1 - setting.member).astype(int)]
    w = rng.uniform(-np.pi, np.pi, (instances, weights))
    gradients = height[:, None, None] * np.sin(w[:, None, None] - centres)
    part = (setting.filled * setting.member[:, None])[..., None]
    mean = (np.exp(1j * centres) * part).sum(axis=(1, 2)) / part.sum(axis=(1, 2))
    ripple, phase = height * np.abs(mean), np.angle(mean)

    def expected_gap(steps: Array, variance: Array) -> Array:
        there = (w - phase)[:, None] + steps
        waves = 1.0 - np.cos(there) * np.exp(-variance / 2.0)[..., None]
        return np.asarray((ripple[:, None] * waves).sum(axis=-1))

    gap = expected_gap(np.zeros((instances, 1, weights)), np.zeros((instances, 1)))[:, 0]
    smoothness = ripple.max(axis=-1)
    dominance = smoothness * rng.uniform(0.001, 0.05, instances)
    return Problem(setting, gradients, gap, smoothness, dominance, 4.0 * dominance * ripple.sum(axis=-1), expected_gap)
