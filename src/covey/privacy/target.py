"""The noise cap (11e) that a wished-for epsilon needs.

The answer holds for whoever is served in every planned round, with the least noise that the levels of (32) can give it
whoever is served beside it. Users who are served less often, or beside others, end below the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from covey.errors import ScenarioError
from covey.privacy.accounting import Adjacency, Unit, epsilon
from covey.privacy.events import GaussianReleases
from covey.privacy.ledger import Ledger

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Largest cap of a scenario.
MOST_V_MAX = 1e12
#: Relative accuracy of the cap, on the safe side.
ACCURACY = 1e-4


def least_std(samples: Ints, v_max: float) -> Floats:
    """(U,) least standard deviation of each user's noise under cap (11e), whoever is served with it; no floor (11f).

    X_i std_i is never below sqrt(v_max) min X: what the smallest user has when alone. No std_i is below that of the
    largest user beside the smaller ones that lower c of errata E30 most.
    """
    sizes = np.sort(samples.astype(np.float64))
    others, last = sizes[:-1], sizes[-1]
    weights = last + np.concatenate([[0.0], np.cumsum(others)])
    slopes = last**-0.5 + np.concatenate([[0.0], np.cumsum(others**-0.5)])
    lowest = math.sqrt(v_max * float((weights / slopes).min()) * last**-1.5)
    return np.asarray(np.maximum(math.sqrt(v_max) * sizes[0] / samples, lowest))


def v_max_for(
    target: float,
    *,
    samples: Ints,
    n_min: float,
    delta: float,
    adjacency: Adjacency,
    unit: Unit,
    uploads: int,
    announced_rho: float,
    releases: Callable[[Floats], GaussianReleases],
) -> float:
    """The smallest cap with which nobody exceeds epsilon `target` by `uploads` uploads and announcements.

    samples: (U,); announced_rho: total rho of a user's announcements; releases(std): one upload of each user with noise
    `std` (U,). Raises `ScenarioError`, which names the bound, where no cap does it or the floor (11f) is in the way.
    """
    alone = epsilon(announced_rho, delta, "zcdp")
    if alone >= target:
        raise ScenarioError(
            f"privacy.target_epsilon is {target:g}, but the announcements of tasks alone cost epsilon {alone:.4g};"
            f" raise it above {alone:.4g}, lower privacy.identity_rho, or announce less often"
        )

    def spent(v_max: float, users: Ints | None = None) -> Ledger:
        each = releases(least_std(samples, v_max))
        whole = GaussianReleases(each.noise_std, each.sensitivity, each.rate, each.steps * uploads)
        chosen = np.arange(len(samples)) if users is None else users
        ledger = Ledger(len(chosen), delta=delta, adjacency=adjacency, unit=unit)
        ledger.add_lost(np.arange(len(chosen)), whole.of(chosen))
        ledger.spent["identity"] += announced_rho
        return ledger

    cap = _smallest(lambda v_max: spent(v_max).largest_epsilon(), target)
    if cap is not None and spent(cap).sampled:
        # Bounds by divergences say who loses most; loss distributions then say how much less noise is enough.
        worst = np.array([int(np.argmax(spent(cap).epsilon("zcdp")))])
        cap = _smallest(lambda v_max: float(spent(v_max, worst).epsilon().max()), target, cap)
        while cap is not None and spent(cap).epsilon().max() > target:
            cap *= 1.0 + 10 * ACCURACY
    if cap is None or cap > MOST_V_MAX:
        most = spent(MOST_V_MAX).largest_epsilon()
        raise ScenarioError(
            f"privacy.target_epsilon is {target:g}, but even the largest privacy.v_max, {MOST_V_MAX:g}, gives epsilon"
            f" {most:.4g}; raise the target to at least that, lower training.clip, or play fewer rounds"
        )
    cap = _rounded_up(cap)
    floor = math.sqrt(cap) * float(samples.min())
    if n_min > floor:
        reached = spent((n_min / float(samples.min())) ** 2).largest_epsilon()
        raise ScenarioError(
            f"privacy.target_epsilon is {target:g}, which needs privacy.v_max = {cap:g}, but the floor (11f),"
            f" privacy.n_min = {n_min:g}, does not fit under such a cap (11e); lower privacy.n_min to at most"
            f" {_rounded_down(floor):g}, or privacy.target_epsilon to at most {_rounded_down(reached):g}"
        )
    return cap


def _smallest(cost: Callable[[float], float], target: float, start: float = 1.0) -> float | None:
    """The smallest v_max whose cost is at most `target`, up to `ACCURACY` above; None where there is none."""
    high = start
    while cost(high) > target:
        high *= 4.0
        if high > 4.0 * MOST_V_MAX:
            return None
    low = high / 4.0
    while cost(low) <= target:
        low, high = low / 4.0, low
        if low < 1e-12:
            return high
    while high / low > 1.0 + ACCURACY:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle) > target else (low, middle)
    return high


def _rounded_up(value: float, digits: int = 5) -> float:
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.ceil(value * scale) / scale


def _rounded_down(value: float, digits: int = 4) -> float:
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.floor(value * scale) / scale
