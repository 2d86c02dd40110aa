"""The tables of a run as rows of text; the terminal and the web page only render them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from covey.errors import CoveyError
from covey.parts import ANNOUNCEMENTS
from covey.privacy.accounting import METHODS
from covey.report.words import VIOLATION_WORDS, number, percent, quantity, seconds, whole
from covey.simulation import History

#: Up to this many users have a row each; above, the distribution and the worst users.
LISTED_USERS = 24
WORST_USERS = 5
RIGHT, WRONG = "\N{CHECK MARK} right", "\N{BALLOT X} wrong"

Summary = dict[str, Any]

#: Columns that accuracy is compared with, and their heads.
_BESIDE = {
    "majority": "most frequent class",
    "central": "central model",
    "personal_accuracy": "personal models",
}


@dataclass(frozen=True)
class Sheet:
    """A table: column heads, rows of text, and the number of leading text columns; the others are numeric."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: int = 1


def _index(number: int) -> str:
    """The number of a task or group; a dash where there is none or nobody knows it."""
    return str(number) if number >= 0 else "-"


def task_sheet(summary: Summary) -> Sheet:
    """One row per task, with the group it is matched to, if any."""
    told = any(user["identity"] >= 0 for user in summary["users"])
    return Sheet(
        "Tasks after the last round",
        ("task", "group", "users", "uploads", "accuracy", "loss", "group loss before", "after"),
        [
            (
                str(task["task"]),
                _index(task["group"]),
                str(task["users"]) if told else "-",
                str(task["served"]),
                percent(task["accuracy"]),
                number(task["loss"]),
                number(task["group_loss_start"]),
                number(task["group_loss"]),
            )
            for task in summary["tasks"]
        ],
        words=0,
    )


def accuracy_sheet(history: History) -> Sheet:
    """Accuracy after the last round, for all and by true group, beside guessing and the central model where known."""
    last = history.records[-1]
    known = [(name, head) for name, head in _BESIDE.items() if np.isfinite(getattr(last, name))]
    columns = ["accuracy", *(name for name, _ in known)]
    rows = [("all", *(percent(getattr(last, name)) for name in columns))]
    if (history.groups >= 0).any():
        lists = [getattr(last, f"group_{name}") for name in columns]
        rows += [
            (f"group {group}", *(percent(value) for value in values))
            for group, values in enumerate(zip(*lists, strict=True))
        ]
    return Sheet("Test accuracy after the last round", ("users", "accuracy", *(head for _, head in known)), rows)


def confusion_sheet(history: History) -> Sheet:
    """Users by true group and announced task in the last round."""
    tasks, last = history.scenario.network.tasks, history.records[-1]
    counts = np.zeros((history.scenario.groups, tasks), dtype=np.int64)
    known = (history.groups >= 0) & (last.users.identity >= 0)
    np.add.at(counts, (history.groups[known], last.users.identity[known]), 1)
    return Sheet(
        f"Users by true group and announced task in round {last.round}",
        ("group", *(f"task {task}" for task in range(tasks))),
        [(str(group), *(str(users) for users in row)) for group, row in enumerate(counts.tolist())],
        words=0,
    )


def user_sheet(
    summary: Summary, title: str = "Users after the last round", order: list[int] | None = None, *, beside: bool = False
) -> Sheet:
    """One row per user, or of the users in `order`; `beside` adds what accuracy is compared with."""
    users = summary["users"] if order is None else [summary["users"][index] for index in order]
    lines = _lines(summary) if beside else {}
    return Sheet(
        title,
        ("user", "samples", "group", "task", "identity", "served", "loss", "accuracy", *lines.values(), "epsilon"),
        [
            (
                str(user["user"]),
                str(user["samples"]),
                _index(user["group"]),
                _index(user["identity"]),
                {True: RIGHT, False: WRONG, None: "-"}[user["identity_right"]],
                str(user["served_rounds"]),
                number(user["loss"]),
                percent(user["accuracy"]),
                *(percent(user[name]) for name in lines),
                number(user["epsilon"]),
            )
            for user in users
        ],
        words=0,
    )


def _lines(summary: Summary) -> dict[str, str]:
    """Columns of users that accuracy is compared with, and their heads; those that are known of anybody."""
    heads = {"majority": "guess", "central": "central", "personal_accuracy": "personal"}
    return {name: head for name, head in heads.items() if any(np.isfinite(user[name]) for user in summary["users"])}


def worst_sheet(summary: Summary) -> Sheet:
    """The users with the lowest accuracy, ties by higher loss."""
    users = summary["users"]
    order = sorted(range(len(users)), key=lambda index: (users[index]["accuracy"], -users[index]["loss"]))
    worst = order[:WORST_USERS]
    return user_sheet(summary, f"The {len(worst)} users with the lowest accuracy", worst)


def spread_sheet(summary: Summary) -> Sheet:
    """Quantiles over users of the columns of `user_sheet`."""
    users = summary["users"]
    rows = []
    for label, name, show in (
        ("samples", "samples", whole),
        ("rounds served", "served_rounds", whole),
        ("loss", "loss", number),
        ("accuracy", "accuracy", percent),
        ("most frequent class", "majority", percent),
        ("central model", "central", percent),
        ("epsilon", "epsilon", number),
        ("energy", "energy_j", lambda value: quantity(value, "J")),
    ):
        values = np.array([user[name] for user in users], dtype=float)
        if np.isnan(values).all():
            continue
        values = values[~np.isnan(values)]
        # No interpolation: between a finite and an infinite epsilon it is meaningless.
        shares = np.quantile(values, [0.0, 0.1, 0.5, 0.9, 1.0], method="inverted_cdf")
        rows.append((label, *(show(float(value)) for value in shares)))
    right = sum(user["identity_right"] is True for user in users)
    title = f"Distribution over {len(users):,} users; {right:,} have the right identity"
    return Sheet(title, ("", "smallest", "10 %", "median", "90 %", "largest"), rows)


def total_sheet(history: History, summary: Summary) -> Sheet:
    """Delay, energy, service and violations of the whole run."""
    totals, rounds = summary["totals"], summary["rounds"]
    delta = summary["privacy"]["delta"]
    user_energy = totals["transmit_energy_j"] + totals["compute_energy_j"]
    rows = [
        ("Delay", seconds(totals["delay_s"])),
        ("  uplink", seconds(totals["uplink_s"])),
        ("  computing", seconds(totals["compute_s"])),
        ("  downlink", seconds(totals["downlink_s"])),
        ("Energy of all users", quantity(user_energy, "J")),
        ("  sending", quantity(totals["transmit_energy_j"], "J")),
        ("  computing", quantity(totals["compute_energy_j"], "J")),
        ("Energy of all stations (broadcasts)", quantity(totals["station_energy_j"], "J")),
        ("Uploads served", f"{totals['served']:,}, {totals['served'] / rounds:.1f} of {len(history.samples)} a round"),
        (
            f"Largest epsilon of a user at delta = {number(delta, 1)} ({summary['privacy']['neighbours']})",
            number(summary["privacy"]["epsilon_max"]["exact"]),
        ),
        ("Violating users, summed over rounds", f"{totals['violators']:,}"),
    ]
    rows += [(f"  {words}", f"{totals[name]:,}") for name, words in VIOLATION_WORDS.items() if totals[name]]
    rows += [
        ("Rounds with a violation", f"{totals['rounds_with_violations']:,} of {rounds:,}"),
        ("Releases refused (budget spent)", f"{totals['refused_releases']:,}"),
        ("Uploads lost in transit", f"{totals['lost_uploads']:,}"),
        ("Uploads rejected by stations", f"{totals['rejected_uploads']:,}"),
        ("Sum of rewards", number(totals["reward"], 4)),
        ("  without the penalty", number(totals["reward_without_penalty"], 4)),
    ]
    return Sheet("Totals of the run", ("", "value"), rows)


def _identities(name: str) -> str:
    """Description of the announcement mechanism; its name if the part cannot be imported."""
    try:
        return str(ANNOUNCEMENTS.get(name).words)
    except (CoveyError, AttributeError):
        return name


def _budget(budget: float | list[float] | None) -> str:
    if budget is None:
        return "none"
    limits = np.atleast_1d(np.asarray(budget, dtype=float))
    return number(limits[0]) if len(set(limits.tolist())) == 1 else f"{number(limits.min())} to {number(limits.max())}"


def security_sheet(history: History, summary: Summary) -> Sheet:
    """Overhead of secure aggregation: bits, bytes, air time and CPU time."""
    totals, served = summary["totals"], max(summary["totals"]["served"], 1)
    rows = [
        ("Bits of one upload", f"{summary['privacy']['upload_bits']:,.0f}"),
        ("Bytes of the protocol besides uploads, per served user and round", whole(totals["protocol_bytes"] / served)),
        ("Uplink delay in all", seconds(totals["uplink_s"])),
        ("Tasks kept closed for too few uploads, summed over rounds", f"{totals['closed_tasks']:,}"),
    ]
    rows += [
        (f"Milliseconds of {name.replace('_', ': ')}, per served user and round", number(spent / served))
        for name, spent in sorted(history.milliseconds.items())
    ]
    return Sheet("Secure aggregation", ("", "value"), rows)


def privacy_sheet(summary: Summary) -> Sheet:
    """Privacy spent, by each conversion."""
    privacy = summary["privacy"]
    rows = [
        ("Unit of privacy", privacy["unit"]),
        ("Neighbouring data sets", privacy["neighbours"]),
        ("Cap on the noise, v_max" + _of_target(privacy), number(privacy["v_max"])),
        ("Delta", number(privacy["delta"], 1)),
        ("Clipping norm of a user of mean size", number(privacy["clip"])),
        ("Identities", _told(privacy)),
        ("Uploads charged", f"{privacy['releases']:,}"),
        ("Announcements charged", f"{privacy['announcements']:,}"),
        ("Announcements without protection", f"{privacy['unprotected_announcements']:,}"),
        ("Releases refused by the budget", f"{privacy['refusals']:,}"),
        ("Budget, epsilon", _budget(privacy["budget_epsilon"])),
        ("rho of one upload, mean", number(privacy["rho_per_release_mean"])),
        ("rho in total, largest and mean", f"{number(privacy['rho_max'])} and {number(privacy['rho_mean'])}"),
    ]
    rows += [
        (
            f"Epsilon, largest and mean: {METHODS[method]}",
            f"{number(privacy['epsilon_max'][method])} and {number(privacy['epsilon_mean'][method])}",
        )
        for method in METHODS
    ]
    for name, title in (("single_upload", "Epsilon of one upload"), ("under_aggregation", "Epsilon under aggregation")):
        if privacy[name] is not None:
            rows.append((f"{title}: {privacy[name]['assumption']}", number(privacy[name]["epsilon_max"])))
    return Sheet("Privacy accounting", ("", "value"), rows)


def _told(privacy: dict[str, Any]) -> str:
    """How identities are announced; with masked uploads they decide which sum an upload is in, and are not sent."""
    if privacy["security"] != "masked":
        return _identities(privacy["identity"])
    kept = "kept on devices, where they decide which sum an upload is in"
    return kept if privacy["identities_protected"] else f"{kept}, not protected"


def _of_target(privacy: dict[str, Any]) -> str:
    """How the cap on the noise came about, where it follows from a target."""
    target = privacy["target_epsilon"]
    return "" if target is None else f", which follows from the target epsilon {number(target)}"
