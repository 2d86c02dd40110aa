"""Alt text for the plots of a run, for screen readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from covey.report.page_data import spent_epsilons
from covey.report.words import VIOLATION_WORDS, count, listed, number, percent, quantity
from covey.simulation import History

#: Above this many lines the text gives only their range.
_MOST_LINES = 8

Show = Callable[[float | None], str]


def plot_texts(history: History) -> dict[str, str]:
    """Alt text of every plot by plot name; the run has at least one round."""
    rounds = count(len(history.records), "round")
    return {
        "loss": f"Line chart over {rounds}: training loss by true group. {_groups(history, 'group_loss', number)}",
        "accuracy": f"Line chart over {rounds}: test accuracy by true group."
        f" {_groups(history, 'group_accuracy', percent)}{_beside(history)}",
        "task_loss": f"Line chart over {rounds}: training loss of the users of each task."
        f" {_tasks(history, 'task_loss', number)}",
        "task_accuracy": f"Line chart over {rounds}: test accuracy of the users of each task."
        f" {_tasks(history, 'task_accuracy', percent)}",
        "identities": f"Line chart over {rounds}: share of right identities {_course(history, 'clustering_accuracy')},"
        f" adjusted Rand index {_course(history, 'adjusted_rand_index', number)}.",
        "privacy": f"Line chart over {rounds}: epsilon spent. {_spending(history)}",
        "spent": f"Bar chart: epsilon spent by each user up to the chosen round, beside its budget."
        f" {_spending(history)}",
        "clipping": f"Line chart over {rounds}: share of per-sample gradients cut by clipping,"
        f" {_course(history, 'clipped_fraction')}.",
        "service": f"Bar and line chart over {rounds}: users served, {_range(history, 'served')} a round; chosen,"
        f" {_range(history, 'selected')}; violating, {_range(history, 'violators')}.",
        "violations": f"Stacked bar chart over {rounds}: violating users by kind. {_violations(history)}",
        "delay": f"Stacked bar chart over {rounds}: uplink, computing and downlink delay,"
        f" {_range(history, 'delay_s', 's')} in a round.",
        "energy": f"Stacked bar chart over {rounds}: energy of users sending,"
        f" {_range(history, 'transmit_energy_j', 'J')} in a round, of users computing,"
        f" {_range(history, 'compute_energy_j', 'J')}, and of stations, {_range(history, 'station_energy_j', 'J')}.",
    }


def _groups(history: History, column: str, show: Show) -> str:
    before, after = history.start[column], getattr(history.records[-1], column)
    return _moves("Group", before, after, show)


def _beside(history: History) -> str:
    """The lines that accuracy is read against, in the last round."""
    last = history.records[-1]
    lines = [("Naming each user's most frequent class", last.majority), ("A central model", last.central)]
    return "".join(f" {words}: {percent(value)}." for words, value in lines if np.isfinite(value))


def _tasks(history: History, column: str, show: Show) -> str:
    before, after = (getattr(history.records[index], column) for index in (0, -1))
    return _moves("Task", before, after, show)


def _moves(noun: str, before: Sequence[float], after: Sequence[float], show: Show) -> str:
    if len(after) > _MOST_LINES:
        known = [value for value in after if np.isfinite(value)]
        return f"{noun}s end between {show(min(known))} and {show(max(known))}." if known else ""
    # Groups without users are skipped; `before` is empty where the true groups are unknown.
    told = [
        f"{noun.lower()} {index} from {show(first)} to {show(last)}"
        for index, (first, last) in enumerate(zip(before, after, strict=False))
        if np.isfinite(last)
    ]
    return f"{listed(told).capitalize()}." if told else "Not known."


def _course(history: History, column: str, show: Show = percent) -> str:
    values = history.column(column).astype(float)
    known = values[np.isfinite(values)]
    return f"from {show(float(known[0]))} to {show(float(known[-1]))}" if len(known) else "unknown"


def _range(history: History, column: str, unit: str = "") -> str:
    values = history.column(column)
    low, high = (quantity(float(value), unit) if unit else f"{value:,}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _spending(history: History) -> str:
    spent = spent_epsilons(history)[-1]
    if not np.isfinite(spent).all():
        return "It is unlimited, because uploads left without noise."
    return (
        f"In the end users have spent between {number(float(spent.min()))} and {number(float(spent.max()))},"
        f" on average {number(float(spent.mean()))}."
    )


def _violations(history: History) -> str:
    sums = {words: int(history.column(name).sum()) for name, words in VIOLATION_WORDS.items()}
    told = [f"{words}: {total:,}" for words, total in sums.items() if total]
    return f"In all rounds together {'; '.join(told)}." if told else "No rule was broken."
