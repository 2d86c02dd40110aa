"""Black-box audit of releases of several noised sums, on all samples or on Poisson samples.

The best score of such a release is the logarithm of how much likelier it is with the added sample than without: the sum
over its noised sums of ln(1 - q + q exp((2 s - 1) / (2 z^2))), with s the projection of a sum on the direction of the
sample, in units of the sensitivity, q the sampling rate and z the noise multiplier. How often that is above 0 on two
neighbouring data sets gives their distance mu, with exact confidence intervals, to compare with that of the claim.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from covey.privacy.audit import ALPHA, GaussianAudit

Floats = NDArray[np.float64]

#: Releases drawn of the claimed mechanism.
_DRAWN = 400_000


def sampled_scores(projections: ArrayLike, multiplier: float, rate: float) -> Floats:
    """(n,) log-likelihood ratios of releases whose sums project to `projections` (n, steps), in sensitivities."""
    sums = np.asarray(projections, dtype=np.float64)
    if sums.ndim != 2:
        raise ValueError(f"projections have shape {sums.shape}; give (releases, sums)")
    gain = (2.0 * sums - 1.0) / (2.0 * multiplier**2)
    # ln(1 - q + q exp(g)), without overflow.
    with np.errstate(divide="ignore"):
        scores = np.logaddexp(np.log1p(-rate), math.log(rate) + gain)
    return np.asarray(scores.sum(axis=1))


def sampled_audit(
    without: ArrayLike,
    with_sample: ArrayLike,
    multiplier: float,
    rate: float = 1.0,
    *,
    alpha: float = ALPHA,
    seed: int = 0,
) -> GaussianAudit:
    """Measured mu of two neighbours with its confidence interval, beside that of the claimed mechanism.

    without, with_sample: (n, steps) projections of releases on data without and with the added sample, in
    sensitivities, centred so that without noise and without the sample they are 0. multiplier, rate: of the claim; its
    mu at the same threshold is found from draws of the claimed mechanism. `consistent` says only that the measured mu
    is not above the claim; a correct mechanism also has the claim between `low` and `high`.
    """
    scores = [sampled_scores(projections, multiplier, rate) for projections in (without, with_sample)]
    low, high = _distance(scores[0], scores[1], alpha)
    steps, rng = np.asarray(without).shape[1], np.random.default_rng(seed)
    # The claimed mechanism; without noise of its own in the threshold, and symmetric in the order of the two.
    ideal = rng.normal(0.0, multiplier, (2, _DRAWN, steps))
    ideal[1] += rng.random((_DRAWN, steps)) < rate
    claimed = [sampled_scores(sums, multiplier, rate) for sums in ideal]
    return GaussianAudit(_measured(*scores), max(0.0, low), high, _measured(*claimed))


def _measured(without: Floats, with_sample: Floats) -> float:
    """Distance of two normal distributions of equal scale that are told apart as often at threshold 0."""
    wrong, right = (
        (float(np.count_nonzero(scores > 0)) + 0.5) / (len(scores) + 1.0) for scores in (without, with_sample)
    )
    return float(stats.norm.ppf(right) - stats.norm.ppf(wrong))


def _distance(without: Floats, with_sample: Floats, alpha: float) -> tuple[float, float]:
    """The confidence interval of that distance: Clopper and Pearson's of both rates."""
    bounds = []
    for scores in (without, with_sample):
        above, n = int(np.count_nonzero(scores > 0)), len(scores)
        low = 0.0 if above == 0 else float(stats.beta.ppf(alpha / 4, above, n - above + 1))
        high = 1.0 if above == n else float(stats.beta.ppf(1 - alpha / 4, above + 1, n - above))
        bounds.append((low, high))
    (wrong_low, wrong_high), (right_low, right_high) = bounds
    least = stats.norm.ppf(right_low) - stats.norm.ppf(wrong_high)
    return float(least), float(stats.norm.ppf(right_high) - stats.norm.ppf(wrong_low))
