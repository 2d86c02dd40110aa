"""What an identification rule is: how users find their task, what they say about it, and what it costs.

A rule is a part (`covey.parts.RULES`): a class that is made with the scenario of a run. Most rules let every user work
out its task from its losses and gradients on all models; they derive from `ScoreRule` and give `told`, what a user
says, and, if that is not simply its task, `assign`, what stations make of everybody's words. Rules in which stations
do the work override `find`. Whatever a rule takes from users beyond these calls it must charge to the ledger of the
round or label as unprotected there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.arrays import make_read_only
from covey.errors import CoveyError
from covey.parts import ANNOUNCEMENTS, RULES, STARTS
from covey.scenario import Scenario
from covey.seeding import generator

if TYPE_CHECKING:
    from torch import Tensor

    from covey.federated import Fleet, Intake, LocalTraining
    from covey.federated.user_compute import UserCompute
    from covey.identification.announcement import Announcement
    from covey.privacy import Journal, Ledger

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.float32]
#: What a rule remembers from round to round, by name; saved and restored with the run. Names that begin with one of
#: `RESERVED` belong to the start, to `clustering.rescue` and to `clustering.turns`: a rule can read them, need not
#: return them, and is refused where it changes them.
Memory = Mapping[str, npt.NDArray[Any]]
RESERVED = ("models.", "start.", "rescue.", "turns.", "evidence.", "paths.")


def _nobody() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class RuleRound:
    """What a rule may use in a round, counted from 0; arrays can be read, not written.

    samples: (U,) X_i; clip: (U,) clipping norms; truth: (U,) true groups, -1 for rules that do not need them;
    models, movements: (K, D); identities: (U,) tasks of the last round; exhausted: (U,) users that sit out; ledger: of
    the round so far, which cannot be written: charge a copy; training: what a local step of a user is; memory: what the
    rule remembered in the last round, and what others remember under `RESERVED` names.
    """

    round: int
    seed: int
    scenario: Scenario
    fleet: Fleet
    training: LocalTraining
    samples: Ints
    clip: Floats
    truth: Ints
    models: Weights
    movements: Weights
    identities: Ints
    exhausted: Bools
    ledger: Ledger
    journal: Journal
    memory: Memory

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def users(self) -> int:
        """Number of users, U."""
        return len(self.samples)

    @property
    def tasks(self) -> int:
        """Number of tasks, K."""
        return len(self.models)

    @property
    def blind(self) -> bool:
        """Whether stations know neither tasks nor single uploads."""
        return self.scenario.security.mode != "none"

    @property
    def masked(self) -> bool:
        """Whether stations see masked sums only, so that tasks stay on the devices and decide what is in which sum."""
        return self.scenario.security.mode == "masked"

    def kept(self, identities: Ints | None = None) -> Identification:
        """These tasks, or those of the last round, at no cost."""
        return Identification(self.identities if identities is None else identities, self.ledger, memory=self.memory)


@dataclass(frozen=True)
class Identification:
    """Tasks (U,), -1 where stations do not know them, and the ledger after announcing them.

    uploaders: users that uploaded a model to be grouped; refused: users that could not afford to announce; memory:
    what the rule remembers, under names that are not `RESERVED`.
    """

    identities: Ints
    ledger: Ledger
    uploaders: Ints = field(default_factory=_nobody)
    refused: Ints = field(default_factory=_nobody)
    memory: Memory = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """What a round left for the next identities, in arrays that can be read, not written.

    intake: what stations let in; joined: (U,) users whose upload is in a model; noise_std: (U,) noise on the sums of
    clipped gradients, 0 where a user was not served; models, movements: (K, D) after the round; totals: (K,) samples
    behind each new model; first_models: (K, D) before the first round; counts: (K,) uploads for each model where sums
    of too few stay closed, -1 where stations do not know; asked: (U,) users that stations could have served, None where
    nobody takes turns.
    """

    intake: Intake
    joined: Bools
    noise_std: Floats
    models: Weights
    movements: Weights
    totals: Floats
    first_models: Weights
    counts: Ints | None = None
    asked: Bools | None = None

    def __post_init__(self) -> None:
        # The record of the round is made from the same arrays.
        make_read_only(self)

    @property
    def used(self) -> Bools:
        """(K,) models for which stations know, or cannot rule out, that somebody uploaded in this round."""
        return np.asarray(self.totals > 0 if self.counts is None else self.counts != 0)


@dataclass(frozen=True)
class Offer:
    """A free model that stations offered to some of a task's users.

    round: after which it was offered, from 0; task: number of the offered model; source: the task whose model it was
    made from; users: those it was made for, empty where nobody in particular; reason: `evidence` (their uploads
    differ from those of the others by `gain` standard deviations of the noise), `guess` (noise hides whether they
    differ) or `copy` (nothing tells users apart: the model is a copy of the source's, and devices toss a coin).
    """

    round: int
    task: int
    source: int
    users: tuple[int, ...]
    reason: str
    gain: float


@dataclass(frozen=True)
class Regrouped:
    """What a round made of the groups, for the next one.

    identities: (U,) tasks to begin the next round with; memory: what the rule remembers, under names
    that are not `RESERVED`; models, movements: (K, D) where
    stations changed them beyond aggregation, else None; fresh: (K,) bool, models that are broadcast in the next round
    although nobody uploaded for them; alone: whether no other model is; offers: free models that were offered;
    estimate, confirmed: number of groups as stations see it, and how many of these uploads confirm, -1 if unknown.
    """

    identities: Ints
    memory: Memory
    models: Weights | None = None
    movements: Weights | None = None
    fresh: Bools | None = None
    alone: bool = False
    offers: tuple[Offer, ...] = ()
    estimate: int = -1
    confirmed: int = -1


class Rule:
    """Base of all rules.

    needs: see `covey.parts.NEEDS`; announcements: values of `privacy.identity` that go with the rule; tells_tasks:
    whether users work out their task and say it, so that announcements of one's own go with it too; guided: whether
    `clustering.start` and `clustering.rescue` apply, which a rule with a start of its own does not need; grows: whether
    the rule by itself takes models beyond `clustering.first_tasks` into use; uploads: models that every user uploads in
    a round to be grouped, charged like any other; note: what a report has to say about the rule.

    For `covey methods`, a few words each; where they are empty, `covey.identification.methods` says what it can tell
    from the rest. paper: where the rule is from; computes: what a user computes in a round in which it announces; sees:
    who sees what; costs: rho of a round; air: what is sent beyond the paper's round; suits, limits: where the rule
    works, and where it does not.
    """

    paper: ClassVar[str] = ""
    computes: ClassVar[str] = ""
    sees: ClassVar[str] = ""
    costs: ClassVar[str] = ""
    air: ClassVar[str] = ""
    suits: ClassVar[str] = ""
    limits: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    announcements: ClassVar[tuple[str, ...]] = ("raw",)
    tells_tasks: ClassVar[bool] = False
    uploads: ClassVar[int] = 0
    guided: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    note: ClassVar[str] = ""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    @property
    def given(self) -> bool:
        """Whether users are told their true group."""
        return "truth" in self.needs

    def start(self, users: int, tasks: int, truth: Ints, rng: np.random.Generator) -> Ints:
        """Tasks before anything is known, (U,); truth: (U,), -1 for rules that do not need it."""
        return random_identities(users, tasks, rng)

    def identify(self, at: RuleRound) -> Identification:
        """The tasks of a round: drawn in the first, kept between announcements, found in all others."""
        if at.round == 0:
            return at.kept(self.start(at.users, at.scenario.first_tasks, at.truth, generator(at.seed, "identity")))
        return self.find(at) if self.announces(at.round) else at.kept()

    def find(self, at: RuleRound) -> Identification:
        """The tasks of a round in which users announce."""
        raise TypeError(f"{type(self).__name__} has no `find`; derive from ScoreRule, or say how tasks are found")

    def after_round(self, at: RuleRound, found: Identification, trained: Trained) -> Regrouped:
        """What stations make of the groups after a round, from what was released or broadcast in it."""
        return Regrouped(found.identities, found.memory)

    def announces(self, number: int) -> bool:
        """Whether users announce in round `number`, counted from 0; the first tasks are drawn, not announced."""
        return announces(self.scenario, number)

    def passes(self, number: int, samples: Ints) -> Floats:
        """(U,) forward-plus-backward passes of one sample that identification takes each user in round `number`."""
        return np.zeros(len(samples))


class ScoreRule(Rule):
    """Users compare all models on their own samples and say what `told` makes of it.

    passes_per_model: forward-plus-backward passes of a sample on one model; a forward pass alone counts a third.
    """

    guided: ClassVar[bool] = True
    tells_tasks: ClassVar[bool] = True
    passes_per_model: ClassVar[float] = 1.0

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.announcement: Announcement = ANNOUNCEMENTS.build(scenario.privacy.identity, scenario, self)

    @property
    def similarity_weight(self) -> float:
        """Weight of the similarity against the loss in private scores, 0 to 1."""
        return 0.0

    @property
    def gradients(self) -> bool:
        """Whether users need gradients besides losses."""
        return "gradients" in self.needs

    def told(self, losses: Floats, similarity: Floats) -> npt.NDArray[Any]:
        """What each of n users says, (n,) tasks or (n, m) numbers, from its losses and similarity, (n, K) each.

        The similarity is the cosine between a user's descent direction at a model and the model's last movement; it is
        0 for rules that do not need gradients. Runs on the device: nothing else leaves it.
        """
        raise TypeError(f"{type(self).__name__} has no `told`; say what users tell from losses and similarity")

    def tell(self, compute: UserCompute, users: list[int], round: int, batch: int, together: int) -> npt.NDArray[Any]:
        """What each of `users` says, (n,) or (n, m), where nothing protects it; as a rule what `told` makes of scores.

        Runs on the device, on `batch` samples, 0 for all; `together`: users to compute at once where that helps.
        """
        return self.told(*compute.score(users, round, batch, self.gradients, together))

    def private_scores(self, compute: UserCompute, x: Tensor, y: Tensor) -> Floats:
        """(K,) mean score of each task over one user's samples x, y, for announcements with noise.

        Runs on the device. Changing one sample must not change any sum of scores by more than `score_width`; what is
        announced is made of that sum over the public number of samples.
        """
        # Imported here because listing and planning rules needs no torch.
        from covey.federated.steps import bounded_scores

        return bounded_scores(
            compute.module,
            compute.models,
            compute.movements,
            x,
            y,
            similarity_weight=self.similarity_weight,
            loss_bound=self.scenario.privacy.loss_bound,
            slope_bound=self.scenario.training.clip,
            size=len(y),
        )

    def score_width(self, *, replaced: bool) -> float:
        """Most that one sample can change a sum of private scores: when replaced, or when added or removed."""
        from covey.identification.noisy_max import score_width

        return score_width(self.similarity_weight, self.scenario.privacy.loss_bound, replaced=replaced)

    def assign(self, told: npt.NDArray[Any], at: RuleRound) -> Ints:
        """Tasks (U,) that stations make of what users said; by default what they said."""
        return np.asarray(told, dtype=np.int64)

    def hear(self, told: npt.NDArray[Any], users: Ints, at: RuleRound) -> tuple[Ints, Memory]:
        """Tasks (U,) that stations make of what `users` (n,) said, and what the rule remembers of it.

        By default `assign` makes the tasks and nothing is remembered; users without an answer (-1 or NaN) keep theirs.
        """
        # Imported here because announcements are made for rules.
        from covey.identification.announcement import answers

        return answers(told, users, at, self), at.memory

    def find(self, at: RuleRound) -> Identification:
        """What users say, in the way that `privacy.identity` names, and what stations make of it."""
        return self.announcement.find(at)

    def after_round(self, at: RuleRound, found: Identification, trained: Trained) -> Regrouped:
        """The tasks that the announcement leads to."""
        return Regrouped(self.announcement.after_round(at, found, trained), found.memory)

    def passes(self, number: int, samples: Ints) -> Floats:
        """(U,) passes: all models on the samples that are scored; none where nothing is announced."""
        scored = self.announcement.scored(samples) if number > 0 and self.announces(number) else 0 * samples
        return np.asarray(self.scenario.network.tasks * self.passes_per_model * scored, dtype=np.float64)


def random_identities(users: int, tasks: int, rng: np.random.Generator) -> Ints:
    """A random task for each user, (U,), with at least one user for every task."""
    if users < tasks:
        raise ValueError(f"{users} users cannot cover {tasks} tasks; there must be at least one user for each task")
    identities = rng.integers(tasks, size=users)
    identities[rng.permutation(users)[:tasks]] = np.arange(tasks)
    return identities


def announces(scenario: Scenario, number: int) -> bool:
    """Whether users announce their task in round `number`, counted from 0."""
    clustering = scenario.clustering
    within = clustering.announce_rounds is None or number <= clustering.announce_rounds
    return within and (number - 1) % clustering.announce_every == 0


def best_score(losses: Floats, similarity: Floats, weight: float) -> Ints:
    """The task of each user, (n,), that maximises weight x similarity - (1 - weight) x loss; both (n, K).

    Ties go to the lowest task. A loss that is not finite is worse than any that is.
    """
    if losses.shape != similarity.shape or losses.ndim != 2:
        raise ValueError(f"losses {losses.shape} and similarity {similarity.shape} must both be (users, tasks)")
    if not 0 <= weight <= 1:
        raise ValueError(f"similarity_weight is {weight}; it must be between 0 and 1")
    usable = np.isfinite(losses)
    similar = np.nan_to_num(similarity, nan=0.0)
    # With a weight of 1 the loss is out of the score, but not the rule that it has to be finite.
    score = np.where(usable, weight * similar - (1 - weight) * np.where(usable, losses, 0.0), -np.inf)
    return np.asarray(score.argmax(1), dtype=np.int64)


def build_rule(scenario: Scenario) -> Rule:
    """The rule that a scenario names, made for it; refuses an announcement, or growth, that does not go with it."""
    rule: Rule = RULES.build(scenario.clustering.rule, scenario)
    identity = scenario.privacy.identity
    if not goes_with(rule, identity):
        fits = " or ".join(f'"{name}"' for name in rule.announcements)
        raise RULES.error(
            f"privacy.identity is '{identity}', which does not go with clustering.rule = '{scenario.clustering.rule}';"
            f" set privacy.identity = {fits}, or choose another rule"
        )
    if scenario.first_tasks < scenario.network.tasks and not rule.grows:
        _check_growth(scenario, rule)
    return rule


def goes_with(rule: Rule | type[Rule], announcement: str) -> bool:
    """Whether a rule takes this announcement: one that it lists or, where users tell tasks, any that others wrote."""
    return announcement in rule.announcements or (rule.tells_tasks and announcement not in ANNOUNCEMENTS.builtin)


def _check_growth(scenario: Scenario, rule: Rule) -> None:
    """Refuse room for models that nothing would ever take into use."""
    clustering, growth = (
        scenario.clustering,
        f"models cannot grow from {scenario.first_tasks} to {scenario.network.tasks}",
    )
    if not rule.guided:
        raise RULES.error(
            f"{growth} with clustering.rule = '{clustering.rule}', to which models are not offered; leave out"
            " clustering.max_tasks and clustering.first_tasks and set network.tasks, or choose another rule"
        )
    if not clustering.rescue and not getattr(STARTS.get(clustering.start), "grows", False):
        raise RULES.error(
            f"{growth}, because none is offered with clustering.rescue = false and clustering.start ="
            f" '{clustering.start}' makes none; set clustering.rescue = true, or as many clustering.first_tasks as"
            " network.tasks"
        )


def rule_of(scenario: Scenario) -> Rule | None:
    """The rule that a scenario names, for whoever reports a run; None where it cannot be imported here."""
    try:
        return build_rule(scenario)
    except CoveyError:
        return None
