"""Fig. 10: loss after the last round over the number of users, FEMNIST."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from covey.figures.claims import Claim
from covey.figures.plans import Work
from covey.figures.rows import Row
from covey.figures.shown.over_users import claims_over_users, draw_over_users, rows_over_users

TITLE = "Loss over the number of users, second data set"
CAPTION = (
    "Real rounds under policies that were trained on the surrogate for each number of users; stations decide alone."
    " Markers are means with 95 % intervals, dots seeds."
)


def rows(work: Work) -> list[Row]:
    """One row per number of users, method and seed."""
    return rows_over_users(work, work.scale.second, work.scale.second_users, ("dpvd", "iql"))


def draw(data: Sequence[Row], setting: str) -> Figure:
    """Loss, served users and groups found."""
    return draw_over_users(data, setting, TITLE)


def claims(data: Sequence[Row], setting: str) -> list[Claim]:
    """Against IQL."""
    return claims_over_users(data, setting, "10", -13.7)
