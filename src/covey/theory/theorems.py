"""Theorem 1, Theorem 2 and Proposition 1, as printed and corrected, and a form without convexity.

All functions take numbers or arrays that broadcast. Symbols: gap = F(w) - F* before the step, F the
mean loss over all samples of the group; `smoothness` L; `convexity` mu; `learning_rate` alpha;
`gradient_offset` and `gradient_slope` are zeta_1 and zeta_2 of Eq. (19): no sample's squared gradient
norm at w exceeds zeta_1 + zeta_2 ||grad F(w)||^2. The derivations are in docs/theory.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.theory.bound import Array, Bound
from covey.theory.participation import Participation

#: Tolerance for rounding in comparisons such as learning_rate <= 1 / smoothness.
_ROUNDING = 1e-9


def printed_theorem_1(
    gap: ArrayLike,
    *,
    smoothness: ArrayLike,
    convexity: ArrayLike,
    gradient_offset: ArrayLike,
    gradient_slope: ArrayLike,
    participation: Participation,
    largest_noise_std: ArrayLike = 0.0,
    weights: int = 1,
) -> Bound:
    """Eqs. (20) and (21) as printed, for a step of 1 / L. **Not a bound**: see `theorem_1`.

    Of the participation only the missing part counts, and it multiplies the whole gap, so that with all users
    served, no errors and no noise the result is 0: the optimum after one step (errata, Theorem 1 and 2).
    largest_noise_std: the largest standard deviation in a coordinate of a user's mean gradient.
    """
    return printed_theorem_2(
        gap,
        smoothness=smoothness,
        dominance=convexity,
        gradient_offset=gradient_offset,
        gradient_slope=gradient_slope,
        participation=participation,
        largest_noise_std=largest_noise_std,
        weights=weights,
    )


def printed_theorem_2(
    gap: ArrayLike,
    *,
    smoothness: ArrayLike,
    dominance: ArrayLike,
    gradient_offset: ArrayLike,
    gradient_slope: ArrayLike,
    participation: Participation,
    slack: ArrayLike = 0.0,
    largest_noise_std: ArrayLike = 0.0,
    weights: int = 1,
) -> Bound:
    """Eq. (24) as printed, for a step of 1 / L. **Not a bound**: see `theorem_2`.

    dominance, slack: mu and eta of Eq. (25). The slack vanishes with the missing users, which nothing justifies.
    """
    size, mu, slope = (np.asarray(v, dtype=np.float64) for v in (smoothness, dominance, gradient_slope))
    missing = participation.missing
    return Bound.of(
        kept=(size - mu + 4.0 * mu * slope) / size * missing * np.asarray(gap),
        missing=2.0 * np.asarray(gradient_offset) * missing / size,
        noise=(weights * np.asarray(largest_noise_std)) ** 2 / (2.0 * size),
        slack=np.asarray(slack) * (1.0 - 4.0 * slope) * missing / (2.0 * size),
    )


def theorem_1(
    gap: ArrayLike,
    *,
    smoothness: ArrayLike,
    convexity: ArrayLike,
    gradient_offset: ArrayLike,
    gradient_slope: ArrayLike,
    participation: Participation,
    noise_energy: ArrayLike = 0.0,
    learning_rate: ArrayLike | None = None,
) -> Bound:
    """Bound on the expected gap after one step of a smooth and strongly convex loss; (20) corrected.

    Assumes: the gradient of F is L-Lipschitz; F is mu-strongly convex (only ||grad F||^2 >= 2 mu gap at w is
    used); Eq. (19) at w for all samples of the group and of those served; noise of mean 0 that is independent of
    who is served; a step of at most 1 / L (1 / L when not given); 4 zeta_2 Q <= 1.

    Result: (1 - alpha mu (1 - 4 zeta_2 Q)) gap + 2 alpha zeta_1 Q + L alpha^2 / 2 E||n||^2. With Q = 0 and no
    noise this is the classical contraction by 1 - mu / L.
    """
    return theorem_2(
        gap,
        smoothness=smoothness,
        dominance=convexity,
        gradient_offset=gradient_offset,
        gradient_slope=gradient_slope,
        participation=participation,
        noise_energy=noise_energy,
        learning_rate=learning_rate,
    )


def theorem_2(
    gap: ArrayLike,
    *,
    smoothness: ArrayLike,
    dominance: ArrayLike,
    gradient_offset: ArrayLike,
    gradient_slope: ArrayLike,
    participation: Participation,
    slack: ArrayLike = 0.0,
    noise_energy: ArrayLike = 0.0,
    learning_rate: ArrayLike | None = None,
) -> Bound:
    """Bound on the expected gap after one step of a smooth loss that need not be convex; (24) corrected.

    Assumes what `theorem_1` does, but instead of convexity only Eq. (25) at w: ||grad F||^2 >= 2 mu gap - eta
    with mu = `dominance` (Polyak-Lojasiewicz) and eta = `slack`. The mu here has nothing to do with negative
    curvature, for which the printed text uses the same letter.

    Result: that of `theorem_1` plus (alpha / 2) (1 - 4 zeta_2 Q) eta, which remains when all users are served.
    """
    size, mu = np.asarray(smoothness, dtype=np.float64), np.asarray(dominance, dtype=np.float64)
    rate = _learning_rate(size, learning_rate)
    if np.any(mu <= 0) or np.any(mu > size * (1.0 + _ROUNDING)):
        raise ValueError(
            "convexity or dominance must be above 0 and at most the smoothness; without one, use stationarity"
        )
    remaining = _remaining(gradient_slope, participation)
    return Bound.of(
        kept=(1.0 - rate * mu * remaining) * np.asarray(gap),
        missing=2.0 * rate * np.asarray(gradient_offset) * participation.missing,
        wrong=2.0 * rate * np.asarray(gradient_offset) * participation.wrong,
        noise=size * rate**2 / 2.0 * np.asarray(noise_energy),
        slack=rate / 2.0 * remaining * np.asarray(slack),
    )


def long_run(
    *,
    smoothness: ArrayLike,
    dominance: ArrayLike,
    gradient_offset: ArrayLike,
    gradient_slope: ArrayLike,
    participation: Participation,
    slack: ArrayLike = 0.0,
    noise_energy: ArrayLike = 0.0,
    learning_rate: ArrayLike | None = None,
) -> Bound:
    """The limit of the gap under repeated application of `theorem_1` or `theorem_2`; (23) corrected.

    Assumes the conditions of the theorem in every round with these constants, and 4 zeta_2 Q < 1. Result:
    (2 zeta_1 Q + L alpha E||n||^2 / 2) / (mu (1 - 4 zeta_2 Q)) + eta / (2 mu).
    """
    one = theorem_2(
        0.0,
        smoothness=smoothness,
        dominance=dominance,
        gradient_offset=gradient_offset,
        gradient_slope=gradient_slope,
        participation=participation,
        slack=slack,
        noise_energy=noise_energy,
        learning_rate=learning_rate,
    )
    if not np.all(proposition_1(gradient_slope, participation)):
        raise ValueError("4 zeta_2 Q is 1, so that nothing contracts and there is no long-run bound; serve more users")
    rate = _learning_rate(np.asarray(smoothness, dtype=np.float64), learning_rate)
    shrink = rate * np.asarray(dominance) * _remaining(gradient_slope, participation)
    return Bound.of(
        kept=0.0, missing=one.missing / shrink, wrong=one.wrong / shrink, noise=one.noise / shrink,
        slack=one.slack / shrink,
    )  # fmt: skip


def stationarity(
    first_gap: ArrayLike,
    *,
    smoothness: float,
    gradient_offset: ArrayLike,
    gradient_slope: float,
    participation: Participation,
    noise_energy: ArrayLike = 0.0,
    learning_rate: float | None = None,
) -> Bound:
    """Bound on the mean over T rounds of E||grad F(w_t)||^2, for any smooth loss that is bounded below.

    Assumes smoothness, Eq. (19) along the path, independent noise of mean 0 and a step of at most 1 / L; neither
    convexity nor dominance, so that it is what holds when mu is 0. first_gap: F(w_0) less any lower bound of F.
    participation: arrays (..., T) over the rounds; gradient_offset and noise_energy broadcast to them.

    Result: (2 first_gap / (alpha T) + 4 mean(zeta_1 Q) + L alpha mean(E||n||^2)) / (1 - 4 zeta_2 max Q).
    """
    rate = float(_learning_rate(np.asarray(smoothness, dtype=np.float64), learning_rate))
    if participation.total.ndim == 0:
        raise ValueError("participation must have one value for each round, (..., T)")
    rounds = participation.total.shape[-1]
    worst = Participation(participation.total.max(axis=-1), np.zeros(participation.total.shape[:-1]))
    remaining = _remaining(gradient_slope, worst)
    if np.any(remaining == 0):
        raise ValueError("4 zeta_2 Q is 1 in some round, so that gradients are not bounded; serve more users")
    offset = np.asarray(gradient_offset, dtype=np.float64)
    energy = np.broadcast_to(np.asarray(noise_energy, dtype=np.float64), participation.total.shape)
    return Bound.of(
        kept=2.0 * np.asarray(first_gap) / (rate * rounds) / remaining,
        missing=4.0 * (offset * participation.missing).mean(axis=-1) / remaining,
        wrong=4.0 * (offset * participation.wrong).mean(axis=-1) / remaining,
        noise=smoothness * rate * energy.mean(axis=-1) / remaining,
    )


def printed_proposition_1(gradient_slope: ArrayLike) -> NDArray[np.bool_]:
    """Eq. (22) as printed: zeta_2 must lie strictly between 0 and 1/4. Sufficient for contraction, not necessary."""
    slope = np.asarray(gradient_slope)
    return np.asarray((slope > 0) & (slope < 0.25))


def proposition_1(gradient_slope: ArrayLike, participation: Participation) -> NDArray[np.bool_]:
    """Whether the corrected theorems contract: exactly where 4 zeta_2 Q < 1.

    zeta_2 below 1/4 is enough for any Q; larger values suffice when few users are missing or wrong; and 0 is
    valid, which Eq. (19) always allows at the price of a larger zeta_1.
    """
    return np.asarray(4.0 * np.asarray(gradient_slope) * participation.total < 1.0)


def _learning_rate(smoothness: Array, given: ArrayLike | None) -> Array:
    if np.any(smoothness <= 0):
        raise ValueError("smoothness must be above 0")
    rate = 1.0 / smoothness if given is None else np.asarray(given, dtype=np.float64)
    if np.any(rate <= 0) or np.any(rate * smoothness > 1.0 + _ROUNDING):
        raise ValueError("the learning rate must be above 0 and at most 1 / smoothness")
    return rate


def _remaining(gradient_slope: ArrayLike, participation: Participation) -> Array:
    """1 - 4 zeta_2 Q, the share of descent that is left."""
    slope = np.asarray(gradient_slope, dtype=np.float64)
    remaining = 1.0 - 4.0 * slope * participation.total
    if np.any(slope < 0) or np.any(remaining < -_ROUNDING):
        raise ValueError("4 zeta_2 Q must not exceed 1; give a smaller gradient_slope with a larger gradient_offset")
    return np.maximum(remaining, 0.0)
