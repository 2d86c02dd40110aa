"""Why a user is not served under a plan, found by trying to add it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from covey.network import VIOLATION_KINDS, Observation, Plan

#: Description of each reason.
REASONS: dict[str, str] = {
    "": "served",
    "no_station": "no station can run its task",
    "too_far": "no station that runs its task is near enough for the rate floor, even without interference",
    "left_out": "it would fit, but the policy left it out",
    "displaces": "it could only be served in place of another user",
    "unable": "it was chosen by a station that cannot run its task",
    "beyond_blocks": "its station has no block left",
    "selected_twice": "it was chosen by more than one station",
    "no_block": "no block reaches the rate floor without breaking another link",
    "no_broadcast": "its model's broadcast does not fit into the downlink limit",
}
#: Reasons found by trying, the closest to being served first.
_ORDER = ("left_out", "displaces", "no_broadcast", "no_block", "beyond_blocks")


def why_not_served(
    plan: Plan,
    selected: NDArray[np.bool_],
    observation: Observation,
    feasible: NDArray[np.bool_],
) -> list[str]:
    """The reason of every user, a key of `REASONS`; empty for served users.

    selected: (B, U) selection of the policy; feasible: (U, B) links that work without interference.
    """
    served = plan.station == np.arange(len(selected))[:, None]  # (B, U)
    return [
        "" if plan.station[user] >= 0 else _reason(user, plan, selected, served, observation, feasible[user])
        for user in range(len(plan.station))
    ]


def _reason(
    user: int,
    plan: Plan,
    selected: NDArray[np.bool_],
    served: NDArray[np.bool_],
    observation: Observation,
    feasible: NDArray[np.bool_],
) -> str:
    broken = [kind for kind in VIOLATION_KINDS if plan.kinds[kind][user]]
    if selected[:, user].any() and broken:
        return broken[-1]
    if not observation.eligible[:, user].any():
        return "no_station"
    if not feasible.any():
        return "too_far"
    found = [_try(user, int(station), served, observation) for station in np.flatnonzero(feasible)]
    return min(found, key=_ORDER.index)


def _try(user: int, station: int, served: NDArray[np.bool_], observation: Observation) -> str:
    """The outcome if a station also serves this user."""
    if served[station].sum() >= observation.blocks:
        return "beyond_blocks"
    wanted = served.copy()
    wanted[station, user] = True
    trial = observation.project(wanted)
    if trial.station[user] >= 0:
        kept = trial.station[served.any(axis=0)] >= 0
        return "left_out" if kept.all() else "displaces"
    return "no_broadcast" if trial.kinds["no_broadcast"][user] else "no_block"
