"""The admission guard: admits pairs of station and user greedily by utility while the plan stays valid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from covey.network import Observation

#: Relative bonus of a user's strongest station, in proportion to its share of the user's gain.
_STRONGEST = 0.5

Utilities = NDArray[np.float64]

#: Bytes of a user's number, of a utility and of a gain in a message between stations.
_NUMBER_BYTES, _UTILITY_BYTES, _GAIN_BYTES = 4, 4, 4


def admit(first: Utilities, further: Utilities, observation: Observation) -> NDArray[np.bool_]:
    """Valid selections (..., B, U) from utilities (..., B, U).

    Pairs with positive utility are admitted from the highest down, each only if all links stay above the rate floor
    and all broadcasts fit: one user of every task by the utility of being its `first`, then others by that of being a
    `further` one. Users that the uplink would then leave out are dropped, so there are no violations.
    """
    gains = observation.gains
    # The gain of serving a user is the same at any station; at its strongest one it interferes least.
    share = np.swapaxes(gains / np.maximum(gains.sum(axis=-1, keepdims=True), 1e-300), -1, -2)
    first, further = (np.where(part > 0, part * (1.0 + _STRONGEST * share), part) for part in (first, further))
    selected = observation.uplink.fill(observation, further, minimum=0.0, first=first)
    return observation.uplink.survivors(observation, selected)


def first_of_tasks(selected: NDArray[np.bool_], first: Utilities, identities: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n, B, U): of every task's selected pairs the one with the highest utility `first`, in each network."""
    count = len(selected)
    score = np.where(selected, first, -np.inf)
    leads = np.zeros(selected.shape, dtype=bool)
    for task in range(int(identities.max(initial=0)) + 1):
        mine = np.where((identities == task)[:, None, :], score, -np.inf).reshape(count, -1)
        best = mine.argmax(axis=1)
        found = np.flatnonzero(np.isfinite(mine[np.arange(count), best]))
        leads.reshape(count, -1)[found, best[found]] = True
    return leads


def exchanged_bytes(first: Utilities, further: Utilities) -> NDArray[np.int64]:
    """(...,) bytes that the stations of each network send each other for one decision; utilities: (..., B, U).

    Every station sends the numbers and both utilities of the users it wants, and its gain to every user that any
    station wants; with these every station runs the same admission and reaches the same plan.
    """
    wanted = (first > 0) | (further > 0)
    offers = wanted.sum(axis=(-2, -1)) * (_NUMBER_BYTES + 2 * _UTILITY_BYTES)
    users = wanted.any(axis=-2).sum(axis=-1)
    return np.asarray(offers + users * further.shape[-2] * _GAIN_BYTES)
