"""Zero-concentrated differential privacy: sensitivity, rho of a release, and epsilon.

A release is the sum of per-sample gradients, each clipped to norm C, plus N(0, std^2 I). Replacing
one sample moves that sum by at most 2 C, adding or removing one by at most C; the cost is
rho = sensitivity^2 / (2 std^2), and rho adds up over releases (Bun and Steinke 2016).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Adjacency = Literal["replace_one", "add_remove"]
#: What a neighbouring data set differs in: one sample of a user, or all data of a device.
Unit = Literal["sample", "device"]
Method = Literal["exact", "zcdp", "simple"]

#: The largest total rho for which formulas differ in more than their last digits.
MOST_RHO = 1e12
#: Description of each conversion, for tables and reports.
METHODS: dict[Method, str] = {
    "exact": "exact for Gaussian releases (Balle and Wang 2018)",
    "zcdp": "tight for any release of this rho (Canonne, Kamath and Steinke 2020)",
    "simple": "rho + 2 sqrt(rho ln(1/delta)) (Bun and Steinke 2016)",
}


def sensitivity(clip: ArrayLike, adjacency: Adjacency = "replace_one") -> NDArray[np.float64]:
    """Largest change of a clipped gradient sum between neighbouring data sets, same shape as `clip`."""
    factor = {"replace_one": 2.0, "add_remove": 1.0}[adjacency]
    return factor * np.asarray(clip, dtype=np.float64)


def release_rho(clip: ArrayLike, noise_std: ArrayLike, adjacency: Adjacency = "replace_one") -> NDArray[np.float64]:
    """zCDP cost of one release, broadcast over users; infinite where `noise_std` is 0.

    With clip = M / X_i and replace-one adjacency this is rho_i = 2 (M / (X_i std_i))^2.
    """
    std = np.asarray(noise_std, dtype=np.float64)
    if np.any(std < 0) or np.any(np.isnan(std)):
        raise ValueError(f"noise_std must be 0 or more, got {noise_std!r}")
    with np.errstate(divide="ignore"):
        return np.asarray(sensitivity(clip, adjacency) ** 2 / (2.0 * std**2))


@lru_cache(maxsize=1 << 16)
def epsilon(rho: float, delta: float, method: Method = "exact") -> float:
    """Epsilon at `delta` of releases whose rho sums to `rho`; infinite for infinite rho.

    `exact` holds when every release was Gaussian, `zcdp` and `simple` for any zCDP release.
    """
    if rho < 0 or math.isnan(rho):
        raise ValueError(f"rho must be 0 or more, got {rho}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}")
    if rho == 0:
        return 0.0
    if math.isinf(rho):
        return math.inf
    # Beyond MOST_RHO the other formulas leave the range of floating point; the simple one stays above both.
    if method == "simple" or rho > MOST_RHO:
        return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))
    if method == "zcdp":
        return _epsilon_zcdp(rho, delta)
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    with np.errstate(divide="ignore"):  # its search tries an epsilon at which delta is 0, whose logarithm is -inf
        return float(get_epsilon_gaussian(1.0 / math.sqrt(2.0 * rho), delta))


def _epsilon_zcdp(rho: float, delta: float) -> float:
    """min over alpha > 1 of rho alpha + ln(1 - 1/alpha) - ln(delta alpha) / (alpha - 1)."""
    return _tightest_order(rho, delta)[1]


def best_order(rho: float, delta: float) -> float:
    """The order of the Renyi divergence at which the tight conversion of `rho` is attained."""
    return _tightest_order(rho, delta)[0]


def _tightest_order(rho: float, delta: float) -> tuple[float, float]:
    """The order at which the tight conversion is attained, and epsilon."""
    from scipy.optimize import minimize_scalar

    def bound(log_excess: float) -> float:
        alpha = 1.0 + math.exp(log_excess)
        return rho * alpha + math.log1p(-1.0 / alpha) - math.log(delta * alpha) / (alpha - 1.0)

    centre = 0.5 * math.log(math.log(1.0 / delta) / rho)
    # Below this the best alpha is so close to 1 that 1 - 1/alpha may be 0 in floating point.
    if centre < -28.0:
        return 1.0 + math.exp(centre), rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))
    found = minimize_scalar(bound, bounds=(centre - 8.0, centre + 8.0), method="bounded", options={"xatol": 1e-10})
    return 1.0 + math.exp(float(found.x)), max(0.0, float(found.fun))


def rho_for_epsilon(target: float, delta: float, method: Method = "zcdp") -> float:
    """Largest total rho whose epsilon at `delta` is at most `target`."""
    from scipy.optimize import brentq

    if target <= 0:
        raise ValueError(f"epsilon must be above 0, got {target}")
    low = high = 1.0
    while epsilon(high, delta, method) < target:
        high *= 2.0
    while epsilon(low, delta, method) > target:
        low /= 2.0
    root = brentq(lambda log_rho: epsilon(math.exp(log_rho), delta, method) - target, math.log(low), math.log(high))
    rho = math.exp(float(root))
    while epsilon(rho, delta, method) > target:
        rho *= 1.0 - 1e-10
    return rho
