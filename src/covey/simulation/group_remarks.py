"""What happened to the groups of a run, in sentences: how they were found, models offered, tasks without users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from covey.simulation.history import History

#: Offers and users that are named one by one.
_NAMED = 4
#: Why a model was offered, by `RoundRecord.offered_reason`.
OFFER_REASONS = ("", "evidence", "guess", "copy")


def group_remarks(history: History) -> list[str]:
    """Sentences on the groups, the most important first; none before the first round."""
    if not history.records:
        return []
    return [*_without_users(history), *_sharing(history), *_undecided(history), *_beginning(history), *_offers(history)]


def _without_users(history: History) -> list[str]:
    empty = [str(task) for task in history.unused_tasks()]
    if not empty:
        return []
    models = f"Model {empty[0]} has" if len(empty) == 1 else f"Models {_listed(empty)} have"
    return [f"{models} no users after {_rounds(len(history.records))}."]


def _sharing(history: History) -> list[str]:
    """Groups that share a model, where the true groups are known."""
    return [
        f"Groups {_listed([str(group) for group in groups])} share model {task}: it is trained on data of different"
        " kinds."
        for task, groups in history.shared_models().items()
    ]


def _undecided(history: History) -> list[str]:
    """Users that changed their task in many rounds."""
    tasks = history.user_column("identity")
    over = np.array([record.starting for record in history.records], dtype=bool)
    tasks = tasks[~over]
    if len(tasks) < 4 or (tasks < 0).any():
        return []
    changes = (np.diff(tasks, axis=0) != 0).sum(axis=0)
    often = np.flatnonzero(changes > (len(tasks) - 1) / 3)
    if len(often) == 0:
        return []
    named = _some([str(user) for user in often])
    return [
        f"{'User' if len(often) == 1 else 'Users'} {named} changed the task in more than a third of the rounds"
        f" ({int(changes[often].max())} times at most): the models that they choose from fit them about equally well."
    ]


def _beginning(history: History) -> list[str]:
    started = [record.round for record in history.records if record.starting]
    if not started:
        return []
    later = [record for record in history.records if not record.starting]
    if not later:
        return [f"All users share one model so far: uploads of {_rounds(len(started))} do not tell the groups apart."]
    found = history.records[len(started) - 1].groups_estimate
    told = "told" if history.records[len(started) - 1].groups_confirmed else "could not tell for sure, but suggested"
    return [
        f"Uploads of the first {_rounds(len(started)) if len(started) > 1 else 'round'} {told}"
        f" {found} {'group' if found == 1 else 'groups'}; each began with a model made from its own uploads."
    ]


def _offers(history: History) -> list[str]:
    made = [record for record in history.records if record.offered_task >= 0]
    sentences = []
    for record in made[:_NAMED]:
        many = "one user" if record.offered_users == 1 else f"{record.offered_users} users"
        why = {
            "evidence": f"to {many} of task {record.offered_source}, whose uploads differ from those of the others",
            "guess": f"to {many} of task {record.offered_source}, because noise hides whether it holds two groups",
            "copy": f"to the users of task {record.offered_source} as a copy, because no uploads tell them apart",
        }[OFFER_REASONS[record.offered_reason]]
        sentences.append(f"After round {record.round}, model {record.offered_task} was offered {why}.")
    if len(made) == _NAMED + 1:
        sentences.append(f"A model was offered once more, after round {made[-1].round}.")
    elif len(made) > _NAMED:
        sentences.append(
            f"Models were offered {len(made) - _NAMED} more times, the last one after round {made[-1].round}."
        )
    return sentences


def _rounds(number: int) -> str:
    return "1 round" if number == 1 else f"{number} rounds"


def _some(words: Sequence[str]) -> str:
    if len(words) <= _NAMED:
        return _listed(words)
    return f"{', '.join(words[:_NAMED])} and {len(words) - _NAMED} more"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
