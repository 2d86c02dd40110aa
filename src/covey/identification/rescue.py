"""A way back for a model that nobody uses: it is offered to part of a task's users.

Groups do not break up, they collide: two groups that like one model best early on stay on it, and another model
stays without users for ever. Stations offer such a free model to the part of a task's users whose uploads differ most
from those of the others. Where noise hides the difference the part is a guess, and where single uploads are not seen,
or do not show steps of their round alone, the offered model is a copy, among which devices toss a coin. Devices then
decide for themselves: users of one group soon meet again on one model. All of it is post-processing of what was
released or broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.identification.evidence import Evidence, Split, best_split, pair_split
from covey.identification.rule import (
    Identification,
    Ints,
    Memory,
    Offer,
    Regrouped,
    RuleRound,
    Trained,
    Weights,
)
from covey.identification.start import IN_PLAY
from covey.identification.turns import HEARD, OPEN, after_turns
from covey.seeding import generator

#: Rounds after an offer in which devices make up their minds, before the next one.
PATIENCE = 2
#: Times as many rounds that a guess waits at most where a few more rounds should tell.
LONGER = 2
#: Users of a task that are compared; more would tell little more and take longer.
MOST = 48
#: A model that was trained in at most this many rounds is hardly trained.
HARDLY = 2


@dataclass(frozen=True)
class _Task:
    """A task that may be split: its number, its users that were heard, and their best two parts."""

    number: int
    heard: Ints
    split: Split


@dataclass(frozen=True)
class _Past:
    """What was remembered: rounds in which each model was trained since it was offered, rounds since it was used last,
    and offers that were made to its users, (K,) each; the round of the last offer; the largest squared length of a
    group's step."""

    trained: Ints
    idle: Ints
    tried: Ints
    last: int
    level: float

    @classmethod
    def of(cls, memory: Memory, tasks: int) -> _Past:
        """From the memory of a run."""
        none = np.zeros(tasks, dtype=np.int64)
        return cls(
            memory.get("rescue.trained", none),
            memory.get("rescue.idle", none),
            memory.get("rescue.tried", none),
            int(memory["rescue.last"][0]) if "rescue.last" in memory else -1,
            float(memory["rescue.level"][0]) if "rescue.level" in memory else 0.0,
        )

    def after(self, trained: npt.NDArray[np.bool_], used: npt.NDArray[np.bool_], level: float) -> _Past:
        """With a round in which these models (K,) were trained, and these used, though sums may have stayed closed."""
        return replace(
            self,
            trained=self.trained + trained,
            idle=np.where(used, 0, self.idle + 1),
            level=max(self.level, level),
        )

    @property
    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to remember."""
        return {
            "rescue.trained": self.trained,
            "rescue.idle": self.idle,
            "rescue.tried": self.tried,
            "rescue.last": np.array([self.last]),
            "rescue.level": np.array([self.level]),
        }


def offer_free_model(
    at: RuleRound, found: Identification, trained: Trained, groups: Regrouped, announced: bool = True
) -> Regrouped:
    """What the rule made of the groups, with a free model offered if there is one and a task that may hold two groups.

    At most one model is offered at a time, none within `PATIENCE` rounds after another, and none that users could not
    announce in the next round; announced: whether the rule lets them.
    """
    if at.blind:
        # A simulation knows the tasks all the same; stations go by which models were trained.
        found = replace(found, identities=np.full_like(found.identities, -1))
    evidence = hear(at, found, trained)
    past = _Past.of(at.memory, at.tasks)
    rng = generator(at.seed, "offer", round=at.round)
    tasks = [task for number in range(at.tasks) if (task := _heard(at, evidence, found, number, past.level, rng))]
    tasks = [_pair(evidence, task, tasks) for task in tasks]
    past = past.after(trained.totals > 0, trained.used, max((task.split.level for task in tasks), default=0.0))
    memory = dict(groups.memory) | evidence.memory | past.memory | _turns(at, found, trained, past, tasks)
    estimate, confirmed = _estimate(at, found, tasks)
    groups = replace(groups, memory=memory, estimate=estimate, confirmed=confirmed)
    waited = at.round - past.last
    if waited < PATIENCE or not announced:
        return groups  # devices are making up their minds, or could not say so
    users = np.bincount(found.identities[found.identities >= 0], minlength=at.tasks)
    shared = [task for task in tasks if task.split.real]
    if shared:
        best = max(shared, key=lambda task: task.split.score - task.split.chance)
    else:
        if 0 <= at.scenario.training.rounds - 1 - at.round <= PATIENCE:
            return groups  # too late for devices to make up their minds
        # Where nothing shows who shares a model, those of the largest task are the most likely to.
        unknown = [task for task in tasks if not task.split.single and users[task.number] > 1]
        if not unknown:
            return groups if waited < 2 * PATIENCE else _offer_copy(at, found, trained, groups, past, tasks)
        # A task whose users came together again after an offer is the less likely to hold two groups.
        best = max(
            unknown,
            key=lambda task: (
                users[task.number] * 0.5 ** past.tried[task.number],
                users[task.number],
                task.split.score - task.split.chance,
            ),
        )
        if best.split.soon and waited < LONGER * PATIENCE:
            return groups
    # A single user may be all there is of its group: without evidence, its model is taken once for the same users.
    single = waited >= 2 * PATIENCE and (best.split.real or past.tried[best.number] == 0)
    free = _free(at, found.identities, past, best.number, single=single, grow=best.split.real)
    return groups if free is None else _offer_part(at, found, trained, groups, past, best, free)


def hear(at: RuleRound, found: Identification, trained: Trained) -> Evidence:
    """The evidence of earlier rounds and of this round's uploads; those not seen, or not of one model, leave none."""
    intake = trained.intake
    rows = np.flatnonzero(intake.accepted & (found.identities[intake.users] >= 0))
    users = intake.users[rows]
    if at.blind or "fresh_steps" in at.training.withholds:
        return Evidence.remembered(at.memory, at.users, users)
    evidence = Evidence.remembered(at.memory, at.users, users, at.models.shape[1]).settled(found.identities)
    noise_std = at.training.upload_noise(trained.noise_std[users], at.samples[users])
    tasks = found.identities[users]
    if evidence.paths is not None:
        return evidence.walked(users, tasks, intake.weights[rows] - at.models[tasks], noise_std)
    for task in np.unique(tasks):
        mine = tasks == task
        if mine.sum() > 1:
            evidence = evidence.heard(users[mine], intake.weights[rows[mine]] - at.models[task], noise_std[mine])
    return evidence


def _heard(
    at: RuleRound, evidence: Evidence, found: Identification, number: int, level: float, rng: np.random.Generator
) -> _Task | None:
    """A task of which somebody was heard, and that has at least two users."""
    users = evidence.heard_users
    users = users[found.identities[users] == number]
    if len(users) == 0 or (found.identities == number).sum() < 2:
        return None
    if len(users) > MOST:
        users = np.sort(rng.permutation(users)[:MOST])
    return _Task(number, users, best_split(evidence, users, at.samples[users].astype(np.float64), 2, rng, level))


def _pair(evidence: Evidence, task: _Task, tasks: list[_Task]) -> _Task:
    """A task of two users, judged by how long the steps of other tasks are: its one product says nothing by itself."""
    others = [other.split.within for other in tasks if len(other.heard) > 2]
    if len(task.heard) != 2 or not others:
        return task
    return replace(task, split=pair_split(evidence, task.heard, float(np.median(others)), task.split.level))


def _turns(
    at: RuleRound, found: Identification, trained: Trained, past: _Past, tasks: list[_Task]
) -> dict[str, npt.NDArray[Any]]:
    """Whose turn it was, and the tasks whose users take turns next: those that may hold two groups."""
    if at.blind or trained.asked is None:
        return {}
    identities = found.identities
    heard = trained.intake.users[trained.intake.accepted]
    turns = after_turns(at.identities, identities, trained.asked, heard, np.zeros(at.tasks, dtype=bool), at.memory)
    settled = [task.number for task in tasks if task.split.single]
    for task in range(at.tasks):
        mine = identities == task
        known = task in settled and (turns[HEARD][mine] > 0).all()
        if mine.sum() > 1 and not known and _free(at, identities, past, task, single=True, grow=True) is not None:
            turns[OPEN][task] = True
    return turns


def _estimate(at: RuleRound, found: Identification, tasks: list[_Task]) -> tuple[int, int]:
    """The number of groups: models in use, and one more for each that two groups share as uploads show.

    Confirmed are the models whose users are of one group as far as their uploads tell, and groups seen to share one.
    """
    if at.blind:
        return -1, -1
    used = len(np.unique(found.identities))
    shared, single = sum(task.split.real for task in tasks), sum(task.split.single for task in tasks)
    return used + shared, 2 * shared + single


def _free(
    at: RuleRound, identities: Ints, past: _Past, source: int, *, single: bool = False, grow: bool = False
) -> int | None:
    """The model to offer: one without users, or else one that was hardly trained, or else, if asked for, a `single`
    user's; None if there is none. Models beyond the first ones are used only to `grow`, on evidence."""
    users = np.bincount(identities[identities >= 0], minlength=at.tasks)
    other = np.arange(at.tasks) != source
    if not grow and (users > 0).sum() >= at.scenario.first_tasks:
        other &= users > 0
    hardly = (past.trained <= HARDLY) & (past.idle >= PATIENCE) & (users <= 1)
    known = (identities >= 0).all()
    for choice in ((users == 0) & (known | (past.idle > PATIENCE)), hardly, (users == 1) & single & known):
        free = np.flatnonzero(choice & other)
        if len(free):
            return int(free[users[free].argmin()])
    return None


def _offer_part(
    at: RuleRound, found: Identification, trained: Trained, groups: Regrouped, past: _Past, best: _Task, free: int
) -> Regrouped:
    """Model `free` is made from the steps of one part of the task's users, the task's own from those of the other."""
    labels = best.split.labels
    if best.split.parts < 2:
        labels = generator(at.seed, "offer", user=1, round=at.round).permutation(len(best.heard)) % 2
    parts = [(best.heard[labels == part], *_mean(at, found, trained, best, labels == part)) for part in (0, 1)]
    # The part of which more was heard in this round keeps the task's model, if there is an upload of the other one.
    parts.sort(key=lambda part: -part[2])
    (_, stays, _), (users, goes, _) = parts
    if goes is None:
        (users, goes, _), stays = parts[0], None
    if goes is None:
        return groups
    models, movements = trained.models.copy(), trained.movements.copy()
    models[free], movements[free] = goes, goes - at.models[best.number]
    if stays is not None:
        models[best.number], movements[best.number] = stays, stays - at.models[best.number]
    reason = "evidence" if best.split.real else "guess"
    offer = Offer(at.round, free, best.number, tuple(int(user) for user in users), reason, best.split.score)
    return _made(at, groups, past, models, movements, offer)


def _mean(
    at: RuleRound, found: Identification, trained: Trained, best: _Task, part: npt.NDArray[np.bool_]
) -> tuple[Weights | None, float]:
    """The mean of what a part of the task's users uploaded in this round, weighted by samples, and their samples."""
    intake = trained.intake
    mine = np.isin(intake.users, best.heard[part]) & (found.identities[intake.users] == best.number)
    rows = np.flatnonzero(intake.accepted & mine)
    if len(rows) == 0:
        return None, 0.0
    weights = at.samples[intake.users[rows]].astype(np.float64)
    mean = np.average(intake.weights[rows].astype(np.float64), axis=0, weights=weights)
    return mean.astype(np.float32), float(weights.sum())


def _offer_copy(
    at: RuleRound, found: Identification, trained: Trained, groups: Regrouped, past: _Past, tasks: list[_Task]
) -> Regrouped:
    """A free model becomes a copy of the most used one of which nothing is known: each of its devices tosses a coin."""
    known = [task.number for task in tasks if task.split.single]
    weights = trained.totals if at.blind else np.bincount(found.identities, weights=at.samples, minlength=at.tasks)
    weights = np.where(np.isin(np.arange(at.tasks), known), 0.0, weights)
    users = np.bincount(found.identities[found.identities >= 0], minlength=at.tasks)
    source = int(weights.argmax())
    free = _free(at, found.identities, past, source)
    if free is None or weights[source] <= 0 or (users[source] < 2 and not at.blind):
        return groups
    models, movements = trained.models.copy(), trained.movements.copy()
    models[free], movements[free] = models[source], movements[source]
    return _made(at, groups, past, models, movements, Offer(at.round, free, source, (), "copy", 0.0))


def _made(
    at: RuleRound, groups: Regrouped, past: _Past, models: Weights, movements: Weights, offer: Offer
) -> Regrouped:
    fresh = np.zeros(at.tasks, dtype=bool)
    fresh[offer.task] = True
    tried = np.where(fresh, past.tried[offer.source] + 1, past.tried)
    tried[offer.source] += 1
    past = replace(past, last=at.round, trained=np.where(fresh, 0, past.trained), tried=tried)
    memory = dict(groups.memory) | past.memory
    if IN_PLAY in memory:
        memory[IN_PLAY] = memory[IN_PLAY] | fresh
    return replace(groups, memory=memory, models=models, movements=movements, fresh=fresh, offers=(offer,))
