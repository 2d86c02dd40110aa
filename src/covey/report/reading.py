"""Interpretation of a run in sentences.

Each function returns the sentences of one section, from a history with at least one round and its
summary. They state facts of this run only, and causes only where the numbers show them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from covey.identification.rule import rule_of
from covey.privacy.words import CHANGES
from covey.report.words import VIOLATION_WORDS, count, listed, number, percent, quantity, seconds
from covey.simulation import History
from covey.simulation.record import UserRecord

Summary = dict[str, Any]

#: Epsilon above which the guarantee is called weak.
WEAK_EPSILON = 10.0
_NAMED = 8


def on_learning(history: History, summary: Summary) -> list[str]:
    """Change of loss and accuracy, and the group that lags."""
    start, last = history.start, history.records[-1]
    if math.isnan(last.loss):
        return ["Devices report neither losses nor accuracies, so learning progress is unknown."]
    sentences = [
        f"Mean training loss {_moved(start['loss'], last.loss)} from {number(start['loss'])} before the first round to"
        f" {number(last.loss)}, test accuracy {_moved(start['accuracy'], last.accuracy)} from"
        f" {percent(start['accuracy'])} to {percent(last.accuracy)}."
    ]
    sentences += _beside_lines(history)
    accuracy = np.array(last.group_accuracy, dtype=float)
    known = np.flatnonzero(np.isfinite(accuracy))
    if len(known) > 1:
        sentences.append(_lag(history, summary, int(known[accuracy[known].argmin()]), accuracy))
    # Both lists are empty if the true groups are unknown.
    pairs = enumerate(zip(start["group_loss"], last.group_loss, strict=False))
    worse = [f"group {group}" for group, (before, after) in pairs if after > before]
    if worse:
        sentences.append(f"The loss of {listed(worse)} is higher than before the first round.")
    clipped = [record.clipped_fraction for record in history.records if math.isfinite(record.clipped_fraction)]
    if clipped:
        sentences.append(
            f"Clipping cut {percent(clipped[0])} of the per-sample gradients in the first round with uploads and"
            f" {percent(clipped[-1])} in the last."
        )
    return sentences


def _beside_lines(history: History) -> list[str]:
    """Accuracy between guessing and the central model, and whether it is clearly above the first."""
    last, above = history.records[-1], history.above_majority
    if not math.isfinite(last.majority):
        return []
    central = ""
    if math.isfinite(last.central):
        central = f"; the same network trained centrally on each group, without noise, reaches {percent(last.central)}"
    sentences = [f"Naming each user's most frequent class is right in {percent(last.majority)} of the cases{central}."]
    if above is not None:
        sentences.append(
            f"Accuracy is {'clearly above' if above.clear else 'not clearly above'} that of naming the class:"
            f" {_points(above.value)} percentage points on average over {count(above.n, 'user')} (95 % interval"
            f" {_points(above.low)} to {_points(above.high)})."
        )
    return sentences


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def on_rounds(history: History, summary: Summary) -> list[str]:
    """User movement, serving stations, and the round in which identities settled."""
    sentences = [_movement(history)]
    station = history.user_column("station")
    served = station >= 0
    if served.any():
        distances = [_distances(history, record.users) for record in history.records]
        nearest = np.stack([distance.argmin(axis=1) for distance in distances])
        sentences.append(
            f"{percent(float((station == nearest)[served].mean()))} of the links lead to the nearest station."
        )
    times = history.served_rounds
    low, high = int(times.min()), int(times.max())
    rounds = count(summary["rounds"], "round")
    sentences.append(
        f"Every user was served in {low} of {rounds}."
        if low == high
        else f"Users were served in {low} to {high} of {rounds}, on average in {times.mean():.1f}."
    )
    tasks = history.user_column("identity")
    if (tasks < 0).any():
        return sentences
    changed = (np.diff(tasks, axis=0) != 0).sum(axis=1)
    if changed.any():
        last = history.records[int(np.flatnonzero(changed)[-1]) + 1].round
        sentences.append(
            f"{count(int(changed[-1]), 'user').capitalize()} changed the task in the last round."
            if changed[-1]
            else f"Nobody changed the task after round {last}."
        )
    elif len(history.records) > 1:
        sentences.append("Nobody ever changed the task.")
    return sentences


def on_identities(history: History, summary: Summary) -> list[str]:
    """How many users found their group."""
    users, final = summary["users"], summary["final"]
    if (rule := rule_of(history.scenario)) is not None and rule.given:
        told = ["Every user was told its true group, so all identities are right by definition."]
        return told + _sharing(history, summary)
    if all(user["identity_right"] is None for user in users):
        return ["The true groups or the tasks of the users are unknown, so clustering quality is unknown."]
    wrong = [user["user"] for user in users if user["identity_right"] is False]
    sentences = [
        f"{len(users) - len(wrong):,} of {count(len(users), 'user')} ({percent(final['clustering_accuracy'])}) ended"
        " with the identity of their own group, under the matching of tasks to groups that agrees best; the adjusted"
        f" Rand index is {number(final['adjusted_rand_index'])} (1 is perfect, 0 is chance)."
    ]
    if wrong:
        named = listed([str(user) for user in wrong[:_NAMED]])
        more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        sentences.append(f"Wrong: {'user' if len(wrong) == 1 else 'users'} {named}{more}.")
    sentences += _sharing(history, summary)
    sentences.append("Identities of the first round are random, with at least one user per task.")
    return sentences


def _sharing(history: History, summary: Summary) -> list[str]:
    """Which groups share a model, and which tasks nobody uses."""
    tasks, groups = history.scenario.network.tasks, history.scenario.groups
    sentences, found = [], summary["groups"]
    if groups > tasks:
        sizes = np.sort(np.bincount(history.groups[history.groups >= 0]))[::-1]
        sentences.append(
            f"There are {groups} groups for {count(tasks, 'task')}, and a task can be right for one group only: at most"
            f" {percent(float(sizes[:tasks].sum() / sizes.sum()))} of the identities can be."
        )
    sentences += [
        f"Groups {listed([str(group) for group in shared])} share the model of task {task}."
        for task, shared in found["shared_models"].items()
    ]
    empty = [str(task) for task in found["unused_tasks"]]
    if empty:
        spare = f", of which {groups} groups need {groups}" if groups < tasks else ""
        named = f"{'task' if len(empty) == 1 else 'tasks'} {listed(empty)}"
        sentences.append(f"No user ended with {named}; {found['tasks_used']} of {tasks} tasks are in use{spare}.")
    return sentences


def on_network(history: History, summary: Summary) -> list[str]:
    """Users served and rules broken."""
    totals, rounds, network = summary["totals"], summary["rounds"], history.scenario.network
    blocks = network.stations * network.blocks
    served = totals["served"] / rounds
    sentences = [
        f"On average {served:.1f} of {count(network.users, 'user')} were served in a round, on"
        f" {percent(served / blocks)} of the {count(blocks, 'block')} of {count(network.stations, 'station')}."
    ]
    never = int((history.served_rounds == 0).sum())
    if never:
        sentences.append(f"{count(never, 'user').capitalize()} {'was' if never == 1 else 'were'} never served.")
    if totals["violators"]:
        kinds = sorted(VIOLATION_WORDS, key=lambda name: -totals[name])
        most = kinds[0]
        others = [f"{VIOLATION_WORDS[name]} ({totals[name]:,})" for name in kinds[1:] if totals[name]]
        sentences.append(
            f"{totals['rounds_with_violations']} of {count(rounds, 'round')} broke a rule, with"
            f" {count(totals['violators'], 'violating user')} in total; most often a user was"
            f" {VIOLATION_WORDS[most]} ({count(totals[most], 'time')}){', else ' if others else ''}{listed(others)}."
        )
        if rounds > 3:
            early, late = (int(part.sum()) for part in np.split(history.column("violators"), [rounds // 2]))
            sentences.append(
                f"The first {count(rounds // 2, 'round')} had {count(early, 'violating user')}, the other"
                f" {rounds - rounds // 2} had {late:,}."
            )
    else:
        sentences.append("No rule was broken in any round.")
    if totals["refused_releases"]:
        sentences.append(f"{count(totals['refused_releases'], 'upload')} did not happen because a budget was spent.")
    if totals["rejected_uploads"]:
        sentences.append(f"{count(totals['rejected_uploads'], 'upload')} arrived damaged and did not enter a model.")
    return sentences


def on_cost(history: History, summary: Summary) -> list[str]:
    """Breakdown of time and energy."""
    totals = summary["totals"]
    delays = {"the uplink": totals["uplink_s"], "computing": totals["compute_s"], "the downlink": totals["downlink_s"]}
    sending, computing = totals["transmit_energy_j"], totals["compute_energy_j"]
    users = sending + computing
    longest = max(delays, key=lambda name: delays[name])
    share = delays[longest] / totals["delay_s"] if totals["delay_s"] > 0 else 0.0
    sentences = [
        f"The rounds took {seconds(totals['delay_s'])} of simulated time, most of it ({percent(share)}) for {longest}.",
        f"All users together spent {quantity(users, 'J')}, {percent(sending / users if users > 0 else 0.0)} of it on"
        f" sending; the stations spent {quantity(totals['station_energy_j'], 'J')} on broadcasts.",
    ]
    delay = history.column("delay_s").astype(float)
    slowest = int(delay.argmax())
    if len(delay) > 1 and delay[slowest] > 1.5 * float(np.median(delay)):
        sentences.append(
            f"The slowest was round {history.records[slowest].round} with {seconds(float(delay[slowest]))}; half of the"
            f" rounds took {seconds(float(np.median(delay)))} or less."
        )
    return sentences


#: What the formulas behind every epsilon take for granted.
ASSUMED = (
    "These numbers take noise, and who is served and announces when, as fixed beforehand; where they followed from"
    " earlier outputs, they describe what happened, and only a limit that was set beforehand promises."
)


def on_privacy(history: History, summary: Summary) -> list[str]:
    """The guarantee of the largest epsilon at this delta."""
    privacy = summary["privacy"]
    largest, mean = privacy["epsilon_max"]["exact"], privacy["epsilon_mean"]["exact"]
    delta = number(privacy["delta"], 1)
    if math.isinf(largest):
        return [
            "Uploads left without noise, so what they may reveal is unlimited.",
            "Set privacy.noise to 'replay' to measure with noise, or to 'secure' to protect real data.",
        ]
    if largest == 0:
        return ["Nobody uploaded anything, so nothing was spent."]
    change = CHANGES[privacy["unit"], privacy["adjacency"]]
    secret = "had the noise been secret, " if privacy["noise"] == "replay" else ""
    released = "uploads and announcements" if privacy["announcements"] else "uploads"
    sentences = [
        f"The largest epsilon of a user is {number(largest)} at delta = {delta}, the mean {number(mean)}: {secret}"
        f"{change} would change the probability of anything that this user's {released} can show"
        f" by a factor of at most {_factor(largest)}, apart from a probability of {delta}.",
        ASSUMED,
    ]
    if largest > WEAK_EPSILON:
        sentences.append(
            f"An epsilon above {number(WEAK_EPSILON, 2)} promises little; a smaller clipping norm, more noise or fewer"
            " rounds lower it."
        )
    if privacy["delta"] * int(history.samples.max()) > 0.1:
        sentences.append(
            f"Delta is not small against one over the number of samples ({int(history.samples.max()):,} for the"
            " largest user), which weakens any epsilon; choose a smaller privacy.delta."
        )
    alone, summed = privacy["single_upload"], privacy["under_aggregation"]
    if alone is not None and math.isfinite(alone["epsilon_max"]):
        sentences.append(f"One upload seen alone costs at most epsilon {number(alone['epsilon_max'])}.")
    if summed is not None:
        sentences.append(
            f"Uploads were masked: against somebody who sees sums only, with at least"
            f" {count(summed['honest'], 'honest user')} besides the user in each, the largest epsilon is"
            f" {number(summed['epsilon_max'])}, the mean {number(summed['epsilon_mean'])}."
            + ("" if privacy["identities_protected"] else " Which sum an upload is in is not covered.")
        )
    budget = _budget(history)
    if budget:
        sentences.append(budget)
    if privacy["refusals"]:
        sentences.append(f"Budgets refused {count(privacy['refusals'], 'release')}.")
    return sentences


def _budget(history: History) -> str:
    """How close users are to their budgets; empty without budgets."""
    limits = history.ledger.budget_rho
    if history.ledger.budget_epsilon is None or not np.isfinite(limits).all():
        return ""
    # In rho, the unit of the budgets: rho composes additively over rounds, epsilon does not.
    shares = history.ledger.charged / np.maximum(limits, np.finfo(float).tiny)
    most = int(shares.argmax())
    near = int((shares > 0.9).sum())
    return (
        f"User {most} has used most of its budget, {percent(float(shares[most]))} of its rho;"
        f" {count(near, 'user')} {'has' if near == 1 else 'have'} less than a tenth left."
    )


def _movement(history: History) -> str:
    if len(history.records) < 2:
        return "One round shows no movement."
    steps = np.hypot(*(np.diff(history.user_column(name), axis=0) for name in ("x_m", "y_m")))
    if not steps.any():
        return "Users stayed where they were."
    return f"Users moved by {number(float(steps.mean()))} m between two rounds on average."


def _distances(history: History, users: UserRecord) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(U, B) metres from every user to every station."""
    at = np.column_stack([users.x_m, users.y_m])
    return np.asarray(np.linalg.norm(at[:, None] - history.stations_m[None], axis=2))


def _moved(before: float, after: float) -> str:
    return "fell" if after < before else "rose" if after > before else "stayed"


def _factor(epsilon: float) -> str:
    return f"e^{number(epsilon)} = {number(math.exp(epsilon))}" if epsilon < 14 else f"e^{number(epsilon)}"


def _lag(history: History, summary: Summary, group: int, accuracy: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    overall = history.records[-1].accuracy
    spread = float(np.nanmax(accuracy) - np.nanmin(accuracy))
    if spread <= 0.05:
        return f"The groups are within {100 * spread:.1f} percentage points of each other in accuracy."
    members = [user for user in summary["users"] if user["group"] == group]
    own = float(np.mean([user["served_rounds"] for user in members]))
    mean = float(history.served_rounds.mean())
    wrong = sum(user["identity_right"] is False for user in members)
    tasks = {task["task"] for task in summary["tasks"] if task["group"] == group}
    guests = sum(user["identity"] in tasks and user["group"] != group for user in summary["users"])
    return (
        f"Group {group} lags with an accuracy of {percent(float(accuracy[group]))} against {percent(overall)} over all:"
        f" its {count(len(members), 'user')} were served in {own:.1f} rounds each (all users: {mean:.1f}), and"
        f" {wrong if wrong else 'none'} of them {'has' if wrong == 1 else 'have'} a wrong identity;"
        f" {count(guests, 'user')} of other groups {'shares' if guests == 1 else 'share'} its model."
    )
