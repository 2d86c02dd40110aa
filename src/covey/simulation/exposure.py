"""What one upload tells whoever sees it alone, and what masked uploads tell, of which only sums are seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from covey.identification.rule import ScoreRule, rule_of
from covey.privacy import epsilon
from covey.privacy.composition import composed_epsilon

if TYPE_CHECKING:
    from covey.federated import LocalTraining
    from covey.simulation.history import History

ALONE = "Somebody who sees one upload of a user and nothing else of it."
CARRIED = (
    "Somebody who sees one upload of a user and nothing else of it. Uploads are users' own models, which hold what was"
    " released of all earlier rounds, so that one counts as everything that its user released."
)
SUMS = (
    "Somebody who sees opened sums only, never a single upload, and who in every sum works together with all users but"
    " the user and {honest} others, those with the least noise; noise of rounding to fixed point is left out."
)
RAW_SLOTS = " Tasks found from data without noise decide which sum an upload is in; that is not covered."


def single_upload(history: History, training: LocalTraining) -> dict[str, Any] | None:
    """The largest epsilon of one upload; None where nobody uploaded.

    An upload that holds the sums of earlier rounds tells as much as all of them.
    """
    noise = history.user_column("noise_std")
    paid = history.user_column("station") >= 0
    if not paid.any():
        return None
    if training.carries_over:
        return {"epsilon_max": float(history.ledger.epsilon("exact").max()), "assumption": CARRIED}
    delta, largest = history.scenario.privacy.delta, 0.0
    lowest = np.where(paid, noise, np.inf).min(axis=0)  # a user's other uploads have more noise
    users = np.flatnonzero(paid.any(axis=0))
    told = training.releases(history.clip[users], lowest[users], history.samples[users])
    whole = told.of(~told.sampled)
    if len(whole.rho):
        largest = epsilon(float(whole.rho.max()), delta, "exact")
    drawn = told.of(told.sampled)
    if len(drawn.rate):
        # No upload is worse than one with the least noise, the largest rate and the most sums of all.
        worst = (float(drawn.multiplier.min()), float(drawn.rate.max()), int(drawn.steps.max()))
        largest = max(largest, composed_epsilon(0.0, 0.0, (worst,), delta))
    return {"epsilon_max": largest, "assumption": ALONE}


def under_aggregation(history: History, training: LocalTraining, honest: int | None = None) -> dict[str, Any] | None:
    """Largest and mean epsilon where only sums are seen, with `honest` honest others in each; None where not known.

    `security.minimum` - 1 others where not given: that many are in every opened sum. The noise of the honest adds up: a
    sum over users weights every sum of gradients with X_i alpha / size, so that in units of what the user itself adds,
    noise is sqrt(sum_j w_j^2 / w_i^2) times as large, w_j its standard deviation in the weighted upload. That holds for
    uploads of one noised sum; of several, of sampled ones, and of those that hold sums of earlier rounds, no gain is
    claimed. An upload that is in no sum counts as if it was seen. Nor is a gain claimed where tasks are worked out from
    single uploads: which sum a user is in then tells of an upload that has its own noise alone.
    """
    scenario = history.scenario
    noise, station = history.user_column("noise_std"), history.user_column("station")
    if scenario.security.mode != "masked" or not history.records or scenario.privacy.noise == "off":
        return None
    rule = rule_of(scenario)
    single = rule is None or (isinstance(rule, ScoreRule) and "released_steps" in rule.announcement.needs)
    if training.carries_over or single:
        return None
    others = scenario.security.minimum - 1 if honest is None else honest
    joined, task = history.user_column("joined") > 0, history.user_column("identity")
    total = history.ledger.spent["identity"].copy()
    for row, served in enumerate(station >= 0):
        users = np.flatnonzero(served)
        told = training.releases(history.clip[users], noise[row, users], history.samples[users])
        if (told.steps != 1).any() or told.sampled.any():
            return None
        weight = history.samples[users] * training.upload_noise(noise[row, users], history.samples[users])
        share = np.ones(len(users))
        for k in np.unique(task[row, users]):
            inside = np.flatnonzero(joined[row, users] & (task[row, users] == k))
            share[inside] = _own_share(weight[inside], others)
        total[users] += told.rho * share
    delta = scenario.privacy.delta
    announced = history.ledger.spent["identity"] > 0
    found = [
        epsilon(rho, delta, "zcdp" if other else "exact")
        for rho, other in zip(total.tolist(), announced.tolist(), strict=True)
    ]
    assumption = SUMS.format(honest=others) + (RAW_SLOTS if history.ledger.unprotected.any() else "")
    return {
        "epsilon_max": max(found),
        "epsilon_mean": float(np.mean(found)),
        "honest": others,
        "assumption": assumption,
    }


def _own_share(weight: NDArray[np.float64], others: int) -> NDArray[np.float64]:
    """(n,) share of each user's noise variance in that of itself and of the `others` with the least noise."""
    squares = weight**2
    order = np.sort(squares)
    count = min(others, len(weight) - 1)
    least = order[: count + 1].sum()
    # A user among the least replaces itself by the next one.
    among = squares <= order[count] if len(order) else squares > 0
    total = np.where(among, least, squares + order[:count].sum())
    return np.asarray(squares / total)
