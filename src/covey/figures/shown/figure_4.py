"""Fig. 4: loss after the last round over the number of users, CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from covey.figures.claims import Claim
from covey.figures.plans import Work
from covey.figures.rows import Row
from covey.figures.shown.over_users import claims_over_users, draw_over_users, rows_of_greedy, rows_over_users

TITLE = "Loss over the number of users"
CAPTION = (
    "Real rounds under policies that were trained on the surrogate for each number of users; stations decide alone."
    " Markers are means with 95 % intervals, dots seeds."
)


def rows(work: Work) -> list[Row]:
    """One row per number of users, method and seed; and greedy, which serves most users, at the scenario's own size."""
    scenario = work.scale.scenario
    return rows_over_users(work, scenario, work.scale.users, ("dpvd", "iql", "qmix")) + rows_of_greedy(work, scenario)


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Loss, served users and groups found."""
    return draw_over_users(data, setting, TITLE)


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """Against IQL and QMIX."""
    return claims_over_users(data, setting, "4", -10.0)
