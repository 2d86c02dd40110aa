"""The admission guard: pairs of station and user are admitted by utility while the plan stays valid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from covey.association.filling import fill_many, settle_many
from covey.environment import Site, View

#: Bytes of a user's number, of a utility and of a gain in a message between stations.
_NUMBER_BYTES, _UTILITY_BYTES, _GAIN_BYTES = 4, 4, 4


def admit(utilities: NDArray[np.float64], view: View, site: Site) -> NDArray[np.bool_]:
    """Valid selections (n, B, U) from utilities (n, B, U) of the first n networks of `view`.

    Pairs with positive utility are admitted from the highest down, each only if all links stay above the rate floor
    and all broadcasts fit. Users that the block matching would then leave out are dropped, so nobody violates a rule.
    """
    count = len(utilities)
    gains = view.gains[:count]
    selected = fill_many(
        utilities,
        view.identities[:count],
        view.eligible(site)[:count],
        gains,
        blocks=site.blocks,
        downlink_slots=site.downlink_slots,
        power_w=site.power_w,
        noise_w=site.noise_w,
        min_sinr=site.min_sinr,
        minimum=0.0,
    )
    return settle_many(
        selected,
        gains,
        view.samples[:count],
        blocks=site.blocks,
        power_w=site.power_w,
        noise_w=site.noise_w,
        min_sinr=site.min_sinr,
    )


def exchanged_bytes(utilities: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n,) bytes that the stations of each network send each other for one decision.

    Every station sends the numbers and utilities of the users it wants, and its gain to every user that any station
    wants; with these every station runs the same admission and reaches the same plan.
    """
    wanted = utilities > 0
    offers = wanted.sum(axis=(1, 2)) * (_NUMBER_BYTES + _UTILITY_BYTES)
    users = wanted.any(axis=1).sum(axis=1)
    return np.asarray(offers + users * utilities.shape[1] * _GAIN_BYTES)
