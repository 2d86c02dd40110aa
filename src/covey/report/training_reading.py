"""Interpretation of a training in sentences.

Each function returns the sentences of one section, from at least one row of metrics.csv. They state
facts of this training only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from covey.report.words import VIOLATION_WORDS, count, listed, number, percent

Rows = Sequence[dict[str, Any]]

#: Decision modes, and how sentences name them.
WAYS: dict[str, str] = {"alone": "alone", "guarded": "behind the admission guard"}


def on_reward(rows: Rows) -> list[str]:
    """Validation reward over epochs, and the better decision mode."""
    best: dict[str, float] = {}
    sentences = []
    for way, words in WAYS.items():
        found = known(rows, f"{way}_reward")
        if not found:
            continue
        epoch, best[way] = max(found, key=lambda pair: pair[1])
        sentences.append(
            f"Deciding {words}, the stations' reward on validation layouts was {_whole(found[0][1])} in epoch"
            f" {found[0][0]:,} and at best {_whole(best[way])} in epoch {epoch:,}, whose weights the policy keeps."
        )
    if not sentences:
        return ["No validation was made yet, so the policy has the weights of the last epoch."]
    if len(best) == len(WAYS) and best["alone"] != best["guarded"]:
        better = max(best, key=lambda way: best[way])
        worse = next(way for way in best if way != better)
        sentences.append(
            f"Deciding {WAYS[better]} is better by {_whole(best[better] - best[worse])} in the accumulated reward of an"
            " episode."
        )
    first, last = (row["reward_without_penalty"] - row["reward"] for row in (rows[0], rows[-1]))
    sentences.append(
        "Rewards are those of the paper with the progressive penalty, whichever penalty the learner was trained with."
        f" While exploring, violations cost {_whole(first)} of it in an episode of the first epoch and"
        f" {_whole(last)} in one of the last."
    )
    return sentences


def on_violations(rows: Rows) -> list[str]:
    """Violations during exploration and in validation."""
    first, last = rows[0], rows[-1]
    sentences = [
        f"While exploring, an episode had {number(first['violators'])} violating users on average in the first epoch"
        f" and {number(last['violators'])} in the last, in {percent(last['violating_rounds'])} of its rounds."
    ]
    kinds = [f"{words} ({number(last[name])})" for name, words in VIOLATION_WORDS.items() if last[name] > 0]
    if kinds:
        sentences.append(f"Users of the last epoch were {listed(kinds)}.")
    for way, words in WAYS.items():
        found = known(rows, f"{way}_violators")
        if found:
            epoch, violators = found[-1]
            amount = "nobody broke" if violators == 0 else f"{number(violators)} users a round broke"
            sentences.append(f"In the validation of epoch {epoch:,}, deciding {words}, {amount} a rule.")
    return sentences


def on_service(rows: Rows, users: int) -> list[str]:
    """How many users were served."""
    first, last = rows[0]["served"], rows[-1]["served"]
    return [
        f"{number(first)} of {count(users, 'user')} were served in a round of the first epoch and {number(last)} in one"
        " of the last, while exploring."
    ]


def on_learning(rows: Rows) -> list[str]:
    """Value loss and exploration rate over epochs."""
    losses = known(rows, "loss")
    sentences = []
    if losses:
        lowest = min(losses, key=lambda pair: pair[1])
        sentences.append(
            f"The value network's mean squared error was {number(losses[0][1])} in the first epoch, {number(lowest[1])}"
            f" at its lowest in epoch {lowest[0]:,}, and {number(losses[-1][1])} in the last. It depends on the"
            " states the policy visits, so a small error alone is no proof of a good policy."
        )
    sentences.append(
        f"{percent(rows[0]['epsilon'])} of the choices were explored at the start and {percent(rows[-1]['epsilon'])} in"
        " the end."
    )
    return sentences


def known(rows: Rows, column: str) -> list[tuple[int, float]]:
    """(epoch, value) pairs of a column, without missing values."""
    return [(row["epoch"], row[column]) for row in rows if math.isfinite(row[column])]


def _whole(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else number(value)
