"""Epsilon of everything that one user released, sums on Poisson samples included.

Gaussian releases of all samples add up in rho, exactly. A noised sum on a Poisson sample has no rho of its own that
shows the gain of sampling; it is composed by its privacy loss distribution (Google's `dp-accounting`), or, where a user
also announced its task with noise of another kind, by Renyi divergences: a release of rho in zCDP has divergence
rho x order at every order, whatever its noise, which a privacy loss distribution could not be made from.

Amplification by sampling is claimed for Poisson sampling and adding or removing one sample only.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from covey.privacy.accounting import Method, epsilon

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Orders at which Renyi divergences of sampled sums are added up; whole numbers, for which they have a closed form.
ORDERS: Floats = np.array(
    [*range(2, 34), 36, 40, 44, 48, 52, 56, 60, 64, 80, 96, 128, 192, 256, 384, 512], dtype=np.float64
)
#: Width of the bins of privacy loss distributions below and above an epsilon of `FINE`. Estimates are pessimistic.
INTERVALS = (1e-4, 1e-3)
FINE = 2.0
#: Above this epsilon by divergences, which promises nothing, no privacy loss distribution is computed.
MOST_EPSILON = 100.0

#: Distance of neighbouring grid points of multipliers and rates, in logarithms.
STEP = 2.5e-4
#: Divergences by grid points, and how many are kept and computed at once.
_DIVERGENCES: dict[tuple[int, int], Floats] = {}
_MOST_KNOWN, _AT_ONCE = 1 << 18, 2048

#: Sums on Poisson samples, as noise multiplier, sampling rate and number of sums.
Sums = tuple[tuple[float, float, int], ...]


def sampled_divergences(multiplier: Floats, rate: Floats, orders: Floats = ORDERS) -> Floats:
    """(n, A) Renyi divergence of one sum with noise `multiplier` (n,) on Poisson samples of `rate` (n,) at `orders`.

    For adding or removing one sample (Mironov, Talwar and Zhang 2019, section 3.3): with q the rate and z the
    multiplier, ln(sum_k C(a, k) (1 - q)^(a - k) q^k exp((k^2 - k) / (2 z^2))) / (a - 1). `orders` (A,) are whole.
    """
    from scipy.special import gammaln, logsumexp, xlog1py, xlogy

    z, q = (np.asarray(values, dtype=np.float64)[:, None] for values in (multiplier, rate))
    found = np.empty((len(z), len(orders)))
    for column, order in enumerate(orders.tolist()):
        k = np.arange(order + 1.0)[None, :]
        choose = gammaln(order + 1.0) - gammaln(k + 1.0) - gammaln(order - k + 1.0)
        terms = choose + xlog1py(order - k, -q) + xlogy(k, q) + (k**2 - k) / (2.0 * z**2)
        found[:, column] = logsumexp(terms, axis=1) / (order - 1.0)
    return np.asarray(np.maximum(found, 0.0))


def known_divergences(multiplier_level: Ints, rate_level: Ints) -> Floats:
    """(n, A) divergences at `ORDERS` of sums whose multipliers and rates are these grid points (n,), from a table."""
    points = list(zip(multiplier_level.tolist(), rate_level.tolist(), strict=True))
    new = sorted({point for point in points if point not in _DIVERGENCES})
    if len(_DIVERGENCES) + len(new) > _MOST_KNOWN:
        _DIVERGENCES.clear()
        new = sorted(set(points))
    for start in range(0, len(new), _AT_ONCE):
        some = new[start : start + _AT_ONCE]
        multiplier, rate = (np.exp(np.array(levels) * STEP) for levels in zip(*some, strict=True))
        _DIVERGENCES.update(zip(some, sampled_divergences(multiplier, rate), strict=True))
    return np.array([_DIVERGENCES[point] for point in points]).reshape(-1, len(ORDERS))


def epsilon_of_divergences(divergences: Floats, delta: float, orders: Floats = ORDERS) -> Floats:
    """(n,) epsilon at `delta` of releases whose divergences add up to `divergences` (n, A) (Canonne et al. 2020)."""
    bound = divergences + np.log1p(-1.0 / orders) - np.log(delta * orders) / (orders - 1.0)
    return np.asarray(np.maximum(bound.min(axis=1), 0.0))


def budget_of_divergence(budget: float, delta: float, orders: Floats = ORDERS) -> Floats:
    """(A,) divergence at each order that implies epsilon `budget` at `delta`; below 0 where no divergence does."""
    return np.asarray(budget - np.log1p(-1.0 / orders) + np.log(delta * orders) / (orders - 1.0))


def composed_epsilon(
    rho_gaussian: float, rho_other: float, sums: Sums, delta: float, method: Method = "exact"
) -> float:
    """Epsilon at `delta` of Gaussian releases on all samples (rho), announcements (rho) and `sums` on Poisson samples.

    `exact`: by privacy loss distributions, or, with announcements, as `zcdp`. `zcdp`: by Renyi divergences, which
    holds whatever the announcements' noise is. `simple`: without any gain from sampling.
    """
    total = rho_gaussian + rho_other
    how: Method = "zcdp" if method == "exact" and rho_other > 0 else method
    if not sums:
        return epsilon(total, delta, how)
    unsampled = total + sum(count / (2.0 * multiplier**2) for multiplier, _, count in sums)
    if math.isinf(total) or how == "simple":
        return epsilon(unsampled, delta, "simple")
    multipliers, rates, counts = (np.array(column, dtype=np.float64) for column in zip(*sums, strict=True))
    divergences = counts @ sampled_divergences(multipliers, rates) + total * ORDERS
    bound = min(float(epsilon_of_divergences(divergences[None], delta)[0]), epsilon(unsampled, delta, "zcdp"))
    if how == "zcdp" or bound > MOST_EPSILON:
        return bound
    return min(bound, _by_loss_distribution(rho_gaussian, sums, delta, INTERVALS[bound > FINE]))


@lru_cache(maxsize=1 << 12)
def _by_loss_distribution(rho: float, sums: Sums, delta: float, interval: float) -> float:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    whole: PrivacyLossDistribution | None = None
    if rho > 0:
        whole = from_gaussian_mechanism(1.0 / math.sqrt(2.0 * rho), value_discretization_interval=interval)
    for multiplier, rate, count in sums:
        part = _loss_distribution(multiplier, rate, interval).self_compose(count)
        whole = part if whole is None else whole.compose(part)
    return 0.0 if whole is None else float(whole.get_epsilon_for_delta(delta))


@lru_cache(maxsize=128)
def _loss_distribution(multiplier: float, rate: float, interval: float) -> PrivacyLossDistribution:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(multiplier, sampling_prob=rate, value_discretization_interval=interval)
