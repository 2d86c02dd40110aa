"""A way back for a model that nobody uses: it is offered to part of a task's users.

Groups do not break up, they collide: two groups that like one model best early on stay on it, and another model
stays without users for ever. Stations offer such a free model to the part of a task's users whose uploads differ most
from those of the others, or to a guess where noise hides the difference. Devices then decide for themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from covey.identification.evidence import Evidence, Split, best_split
from covey.identification.rule import Floats, Identification, Ints, Memory, Offer, Regrouped, RuleRound, Trained, Weights
from covey.seeding import generator

#: Rounds after an offer in which devices make up their minds, before the next one.
PATIENCE = 2
#: A model that was trained in so many rounds or fewer is hardly trained.
HARDLY = 2


@dataclass(frozen=True)
class _Candidate:
    """A task that may be split: its users that were heard, and their best two parts."""

    task: int
    users: Ints
    split: Split


def offer_free_model(at: RuleRound, found: Identification, trained: Trained, groups: Regrouped) -> Regrouped:
    """What the rule made of the groups, with a free model offered if there is one and a task to split.

    Uses uploads and announced tasks alone. At most one model is offered at a time, and none within `PATIENCE` rounds
    after another.
    """
    evidence = hear(at, found, trained)
    memory = dict(groups.memory) | evidence.memory
    reference = float(memory["rescue.level"][0]) if "rescue.level" in memory else 0.0
    last = int(memory["rescue.last"][0]) if "rescue.last" in memory else -PATIENCE
    trained_rounds, idle = _trained(at, found, trained)
    memory |= {"rescue.trained": trained_rounds, "rescue.idle": idle}
    rng = generator(at.seed, "offer", round=at.round)
    candidates = [c for task in range(at.tasks) if (c := _candidate(at, evidence, found, task, reference, rng))]
    memory["rescue.level"] = np.array([max([reference, *(c.split.level for c in candidates)])])
    changed = replace(groups, memory=memory)
    if at.round - last < PATIENCE or not candidates:
        return changed
    best = max(candidates, key=lambda c: (c.split.real, c.split.score - c.split.chance if c.split.real else len(c.users)))
    if not (best.split.real or best.split.hidden):
        return changed
    free = _free(at, groups.identities, best, trained_rounds, idle, at.round - last)
    if free is None:
        return changed
    return _offered(at, found, trained, changed, best, free)


def _trained(at: RuleRound, found: Identification, trained: Trained) -> tuple[Ints, Ints]:
    """(K,) rounds in which each model was trained since it was offered last, and rounds since then; both so far."""
    now = np.bincount(found.identities[np.flatnonzero(trained.joined)], minlength=at.tasks) > 0
    before = at.memory.get("rescue.trained", np.zeros(at.tasks, np.int64))
    idle = at.memory.get("rescue.idle", np.zeros(at.tasks, np.int64))
    return before + now, np.where(now, 0, idle + 1)


def _free(
    at: RuleRound, identities: Ints, best: _Candidate, trained_rounds: Ints, idle: Ints, since: int
) -> int | None:
    """The model to offer: one without users, or else one that was hardly trained, or else one of a single user."""
    users = np.bincount(identities[identities >= 0], minlength=at.tasks)
    others = np.arange(at.tasks) != best.task
    unused = np.flatnonzero((users == 0) & others)
    if len(unused):
        return int(unused[0])
    hardly = np.flatnonzero((trained_rounds <= HARDLY) & (idle >= PATIENCE) & others)
    if len(hardly):
        return int(hardly[users[hardly].argmin()])
    lone = np.flatnonzero((users == 1) & others)
    if len(lone) and since >= 2 * PATIENCE and len(best.users) >= 4:
        return int(lone[at.round % len(lone)])
    return None


def hear(at: RuleRound, found: Identification, trained: Trained) -> Evidence:
    """The evidence of earlier rounds and of this round's uploads."""
    evidence = Evidence.remembered(at.memory, at.users)
    intake = trained.intake
    for task in range(at.tasks):
        rows = np.flatnonzero(intake.accepted & (found.identities[intake.users] == task))
        if len(rows) > 1:
            users = intake.users[rows]
            steps = intake.weights[rows] - at.models[task]
            evidence = evidence.heard(users, steps, at.training.upload_noise(trained.noise_std[users], at.samples[users]))
    return evidence


def _candidate(
    at: RuleRound, evidence: Evidence, found: Identification, task: int, reference: float, rng: np.random.Generator
) -> _Candidate | None:
    users = np.flatnonzero((found.identities == task) & (np.diag(evidence.counts) > 0))
    if len(users) < 2:
        return None
    return _Candidate(task, users, best_split(evidence, users, at.samples[users].astype(float), 2, rng, reference))


def _offered(
    at: RuleRound, found: Identification, trained: Trained, groups: Regrouped, best: _Candidate, free: int
) -> Regrouped:
    """The groups with model `free` made from the steps of one part of the task, and the task's own from the other's."""
    labels = best.split.labels if best.split.parts > 1 else _halves(len(best.users), at)
    intake = trained.intake
    steps: list[tuple[float, Weights | None, Ints]] = []
    for part in (0, 1):
        users = best.users[labels == part]
        rows = np.flatnonzero(intake.accepted & np.isin(intake.users, users) & (found.identities[intake.users] == best.task))
        weights = at.samples[intake.users[rows]].astype(np.float64)
        mean = None
        if len(rows):
            mean = np.average(intake.weights[rows].astype(np.float64), axis=0, weights=weights).astype(np.float32)
        steps.append((float(weights.sum()), mean, users))
    # The part of which more was heard keeps the task's model.
    (_, stays, _), (heard, goes, users) = sorted(steps, key=lambda part: -part[0])
    if goes is None:
        (_, goes, users), stays = max(steps, key=lambda part: part[0]), None
    if goes is None:
        return groups
    models, movements = trained.models.copy(), trained.movements.copy()
    models[free], movements[free] = goes, goes - at.models[best.task]
    if stays is not None:
        models[best.task], movements[best.task] = stays, stays - at.models[best.task]
    fresh = np.zeros(at.tasks, dtype=bool)
    fresh[free] = True
    reason = "evidence" if best.split.real else "hidden"
    offer = Offer(at.round, free, best.task, tuple(int(u) for u in users), reason, best.split.score)
    trained_rounds = groups.memory["rescue.trained"].copy()
    trained_rounds[free] = 0
    memory = dict(groups.memory) | {"rescue.last": np.array([at.round]), "rescue.trained": trained_rounds}
    return replace(groups, memory=memory, models=models, movements=movements, fresh=fresh, offers=(offer,))


def _halves(count: int, at: RuleRound) -> Ints:
    """Random halves, (n,) of 0 and 1."""
    return generator(at.seed, "offer", user=1, round=at.round).permutation(count) % 2
