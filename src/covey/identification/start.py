"""How a run begins: models drawn at random, as in the paper, or made from the first noised uploads.

A start is a part (`covey.parts.STARTS`). With `random`, K different models are drawn and every user begins with a
random task; which groups end up on one model is then a matter of luck. With `release`, all models are equal at first,
so that all uploads can be compared; when they tell the groups apart, each group gets a model made from its own uploads.
That is post-processing of uploads that are charged anyway.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.errors import ScenarioError
from covey.identification.evidence import Evidence, Split, best_split
from covey.identification.paths import Paths
from covey.identification.rule import (
    Identification,
    Ints,
    Memory,
    Regrouped,
    Rule,
    RuleRound,
    Trained,
    random_identities,
)
from covey.identification.turns import HEARD, LAST, OPEN, after_turns
from covey.parts import STARTS
from covey.scenario import Scenario
from covey.seeding import generator

Weights = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

#: Rounds after which the groups are guessed from what was heard, however much noise hides.
LONGEST = 3
#: Memory: (K,) bool, models that devices can choose; all of them where it is not there.
IN_PLAY = "models.in_play"
_OF_THE_START = ("start.steps", "start.rounds", "start.model", HEARD, LAST, OPEN)


class Start:
    """`random`: the paper's start. Base of all starts.

    needs: see `covey.parts.NEEDS`; grows: whether it takes models beyond `clustering.first_tasks` into use.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    grows: ClassVar[bool] = False

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    @property
    def memory(self) -> Memory:
        """What is remembered before the first round: models beyond `first_tasks` are not in play."""
        first, tasks = self.scenario.first_tasks, self.scenario.network.tasks
        return {IN_PLAY: np.arange(tasks) < first} if first < tasks else {}

    def models(self, first: Weights) -> Weights:
        """(K, D) models of the first round, from K models drawn at random."""
        return first

    def broadcasts(self, capable: Bools) -> Bools:
        """(B, K) broadcasts of the first round: every station sends the models of its tasks, `capable` (B, K)."""
        return np.asarray(capable & self.memory.get(IN_PLAY, True))

    def under_way(self, round: int, memory: Memory) -> bool:
        """Whether tasks are not told apart yet: nobody identifies its task, and all models are equal."""
        return False

    def identify(self, at: RuleRound) -> Identification:
        """The tasks of a round of the start: labels that are drawn, so that stations can serve whom they like."""
        return at.kept(random_identities(at.users, at.tasks, generator(at.seed, "identity", round=at.round)))

    def after_round(self, at: RuleRound, found: Identification, trained: Trained) -> Regrouped:
        """What a round of the start made of models and groups."""
        return Regrouped(found.identities, found.memory)


class OwnStart(Start):
    """The start of rules that take models into use by themselves: as `random`, with all models in play."""

    @property
    def memory(self) -> Memory:
        """Nothing: offers, which bring models into play, are not made to such rules."""
        return {}


class ReleaseStart(Start):
    """`release`: one model for all, until uploads tell the groups apart; then a model for each group that was found.

    Users carry drawn labels until then, which tell stations nothing but keep the network's rules as they are: labels
    decide who may serve whom, and uploads of all labels are averaged into the one model.

    Until then the steps of every user are added up, (U, D) float32, in the state and so in every checkpoint: up to
    32 MB. With more users or weights than that (`Paths.fit`) groups begin with the uploads of the last round alone.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"single_uploads", "fresh_steps"})
    grows: ClassVar[bool] = True

    @property
    def memory(self) -> Memory:
        """Nothing: nobody chooses a model as yet."""
        return {}

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
        memory = dict(found.memory) | evidence.memory | _added_up(at, trained, found) | _turns(at, found, trained)
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


def build_start(scenario: Scenario, rule: Rule) -> Start:
    """The start that a scenario names, for rules that it applies to; others have one of their own.

    Raises `ScenarioError` where such a rule would ignore a start that was chosen.
    """
    chosen = scenario.clustering.start
    if rule.guided:
        start: Start = STARTS.build(chosen, scenario)
        return start
    if chosen != type(scenario.clustering).model_fields["start"].default:
        raise ScenarioError(
            f"clustering.start is '{chosen}', but clustering.rule is '{scenario.clustering.rule}', which has a start of"
            " its own; put it back with clustering.start=default"
        )
    return OwnStart(scenario)


def models_in_play(memory: Memory, tasks: int) -> Bools:
    """(K,) whether devices have been sent each of K = `tasks` models, so that they can choose it."""
    return np.asarray(memory.get(IN_PLAY, np.ones(tasks, dtype=bool)))


def known_models(models: Weights, memory: Memory) -> Weights:
    """(K, D) models as devices know them: not a number where a model is not in play, so that nobody chooses it."""
    in_play = models_in_play(memory, len(models))
    return models if in_play.all() else np.where(in_play[:, None], models, np.float32(np.nan))


def groups_heard(evidence: Evidence, heard: Ints, weights: npt.NDArray[np.float64], most: int, at: RuleRound) -> Split:
    """The partition of `heard` users (n,) into as many groups, at most `most`, as their uploads tell apart.

    Where noise hides groups, the best partition into as many parts as there are models at first.
    """
    rng = generator(at.seed, "start", round=at.round)
    level, tried = 0.0, list[Split]()
    for parts in range(most, 0, -1):
        tried.append(best_split(evidence, heard, weights, parts, rng, level))
        level = tried[-1].level
    if tried[-1].hidden:
        return tried[most - min(most, at.scenario.first_tasks)]
    return next((split for split in tried if split.real), tried[-1])


def _added_up(at: RuleRound, trained: Trained, found: Identification) -> dict[str, npt.NDArray[Any]]:
    """The steps of every user since the start, added up, (U, D), how many there were, (U,), and the first model, (D,).

    Nothing where they would take too much memory; groups then begin with what this round made of them.
    """
    weights = at.models.shape[1]
    if not Paths.fit(at.users, weights):
        return {}
    intake = trained.intake
    users = intake.users[intake.accepted]
    steps = at.memory.get("start.steps", np.zeros((at.users, weights), dtype=np.float32)).copy()
    rounds = at.memory.get("start.rounds", np.zeros(at.users, dtype=np.int64)).copy()
    steps[users] += intake.weights[intake.accepted] - at.models[found.identities[users]]
    rounds[users] += 1
    return {"start.steps": steps, "start.rounds": rounds, "start.model": at.memory.get("start.model", at.models[0])}


def _turns(at: RuleRound, found: Identification, trained: Trained) -> dict[str, npt.NDArray[Any]]:
    """Whose turn it was; users of every drawn label take turns, so that stations hear all of them soon."""
    if trained.asked is None:
        return {}
    heard = trained.intake.users[trained.intake.accepted]
    everybody = np.ones(at.tasks, dtype=bool)
    return after_turns(found.identities, found.identities, trained.asked, heard, everybody, at.memory)


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
    """A model for each part of the users, from its own uploads; the common model stays in play.

    Users that were not heard have the common model, or the first where there is one model for each part alone.
    """
    assert common.models is not None
    models = common.models.copy()
    identities = np.full(at.users, split.parts if split.parts < at.tasks else 0)
    identities[heard] = split.labels
    memory = {name: value for name, value in common.memory.items() if name not in _OF_THE_START}
    made = np.arange(at.tasks) < split.parts
    for part in range(split.parts):
        models[part] = _model_of(at, trained, common, heard[split.labels == part])
    # There is a copy of the common model in every free place: one of them is sent too, so that it is in play.
    fresh = np.arange(at.tasks) <= split.parts
    memory |= {
        IN_PLAY: fresh,
        "start.over": np.array([at.round]),
        "rescue.level": np.array([split.level]),
    }
    movements = np.where(made[:, None], models - at.models[0], np.float32(0))
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


def _model_of(at: RuleRound, trained: Trained, common: Regrouped, users: Ints) -> Weights:
    """(D,) the first model, moved by the mean of all steps of these users once for every round of the start.

    Steps count by samples, and alike in all rounds. Rounds in which users were not heard count as if they had made the
    mean step: where all were heard once in three rounds, their one step counts threefold. Where steps of earlier rounds
    were not kept, what these users made of the common model in this round.
    """
    memory, rounds = common.memory, at.round + 1
    if "start.steps" in memory:
        weights = at.samples[users].astype(np.float64)
        total = weights @ memory["start.rounds"][users]
        mean: Weights = (weights @ memory["start.steps"][users] / total).astype(np.float32)
        return np.asarray(memory["start.model"] + rounds * mean)
    intake = trained.intake
    rows = np.flatnonzero(intake.accepted & np.isin(intake.users, users))
    if len(rows) == 0:
        assert common.models is not None
        return np.asarray(common.models[0])
    weights = at.samples[intake.users[rows]].astype(np.float64)
    own: Weights = np.average(intake.weights[rows].astype(np.float64), axis=0, weights=weights).astype(np.float32)
    return own
