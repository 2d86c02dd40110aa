"""How a run begins: models drawn at random, as in the paper, or made from the first noised uploads.

A start is a part (`covey.parts.STARTS`). With `random`, K different models are drawn and every user begins with a
random task; which groups end up on one model is then a matter of luck. With `release`, all models are equal at first,
so that all uploads can be compared; when they tell the groups apart, each group gets a model made from its own uploads.
That is post-processing of uploads that are charged anyway.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification.evidence import Evidence, Split, best_split
from covey.identification.rule import Identification, Ints, Memory, Regrouped, RuleRound, Trained, random_identities
from covey.scenario import Scenario
from covey.seeding import generator

Weights = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

#: Rounds after which the groups are guessed from what was heard, however much noise hides.
LONGEST = 3


class Start:
    """`random`: the paper's start. Base of all starts; needs: see `covey.parts.NEEDS`."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def models(self, first: Weights) -> Weights:
        """(K, D) models of the first round, from K models drawn at random."""
        return first

    def broadcasts(self, capable: Bools) -> Bools:
        """(B, K) broadcasts of the first round: every station sends the models of its tasks, `capable` (B, K)."""
        return capable.copy()

    def under_way(self, round: int, memory: Memory) -> bool:
        """Whether tasks are not told apart yet: nobody identifies its task, and all models are equal."""
        return False

    def identify(self, at: RuleRound) -> Identification:
        """The tasks of a round of the start: labels that are drawn, so that stations can serve whom they like."""
        return at.kept(random_identities(at.users, at.tasks, generator(at.seed, "identity", round=at.round)))

    def after_round(self, at: RuleRound, found: Identification, trained: Trained) -> Regrouped:
        """What a round of the start made of models and groups."""
        return Regrouped(found.identities, found.memory)


class ReleaseStart(Start):
    """`release`: one model for all, until uploads tell the groups apart; then a model for each group that was found.

    Users carry drawn labels until then, which tell stations nothing but keep the network's rules as they are: labels
    decide who may serve whom, and uploads of all labels are averaged into the one model.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"single_uploads"})

    def models(self, first: Weights) -> Weights:
        """(K, D): the first model, K times."""
        return np.repeat(first[:1], len(first), axis=0)

    def broadcasts(self, capable: Bools) -> Bools:
        """(B, K): one model is sent once, for all are equal."""
        return _one(capable)

    def under_way(self, round: int, memory: Memory) -> bool:
        """Until groups were made."""
        return round == 0 or "start.over" not in memory

    def after_round(self, at: RuleRound, found: Identification, trained: Trained) -> Regrouped:
        """All models become their common mean; or, when the groups can be told apart, those of the groups."""
        intake = trained.intake
        users = intake.users[intake.accepted]
        evidence = Evidence.remembered(at.memory, at.users, users)
        if len(users):
            noise = at.training.upload_noise(trained.noise_std[users], at.samples[users])
            steps = intake.weights[intake.accepted] - at.models[found.identities[users]]
            evidence = evidence.heard(users, steps, noise)
        memory = dict(found.memory) | evidence.memory
        heard = evidence.heard_users
        models = np.repeat(_common(trained)[None], at.tasks, axis=0)
        first = np.arange(at.tasks) == 0
        common = Regrouped(found.identities, memory, models, models - at.models, fresh=first, alone=True)
        if len(heard) < 2:
            return common
        split = groups_heard(evidence, heard, at.samples[heard].astype(np.float64), at.tasks, at)
        enough = len(heard) >= min(at.users, 2 * at.tasks) and not split.hidden
        if not enough and at.round + 1 < LONGEST:
            return common
        return _groups_made(at, trained, common, heard, split)


def groups_heard(evidence: Evidence, heard: Ints, weights: npt.NDArray[np.float64], most: int, at: RuleRound) -> Split:
    """The partition of `heard` users (n,) into as many groups, at most `most`, as their uploads tell apart.

    Where noise hides groups, the best partition into `most` parts.
    """
    rng = generator(at.seed, "start", round=at.round)
    level, tried = 0.0, list[Split]()
    for parts in range(most, 0, -1):
        tried.append(best_split(evidence, heard, weights, parts, rng, level))
        level = tried[-1].level
    if tried[-1].hidden:
        return tried[0]
    return next((split for split in tried if split.real), tried[-1])


def _one(capable: Bools) -> Bools:
    """(B, K): the first task, sent by the first station that runs it."""
    active = np.zeros_like(capable)
    active[int(capable[:, 0].argmax()), 0] = True
    return active


def _common(trained: Trained) -> Weights:
    """(D,) mean of the models that somebody trained, weighted by samples."""
    if not trained.totals.any():
        first: Weights = trained.models[0]
        return first
    mean: Weights = np.average(trained.models.astype(np.float64), axis=0, weights=trained.totals).astype(np.float32)
    return mean


def _groups_made(at: RuleRound, trained: Trained, common: Regrouped, heard: Ints, split: Split) -> Regrouped:
    """A model for each part of the users, from this round's uploads of it; all others stay free and equal."""
    assert common.models is not None
    intake, base = trained.intake, at.models[0]
    identities, models = common.identities.copy(), common.models.copy()
    identities[heard] = split.labels
    fresh = np.zeros(at.tasks, dtype=bool)
    for part in range(split.parts):
        rows = np.flatnonzero(intake.accepted & np.isin(intake.users, heard[split.labels == part]))
        fresh[part] = True
        if len(rows):
            weights = at.samples[intake.users[rows]].astype(np.float64)
            models[part] = np.average(intake.weights[rows].astype(np.float64), axis=0, weights=weights)
    memory = dict(common.memory) | {"start.over": np.array([at.round]), "rescue.level": np.array([split.level])}
    movements = np.where(fresh[:, None], models - base, np.float32(0))
    return replace(
        common,
        identities=identities,
        memory=memory,
        models=models,
        movements=movements,
        fresh=fresh,
        estimate=split.parts,
        confirmed=split.parts if split.real else 0,
    )
