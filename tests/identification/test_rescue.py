"""Free models go to the right users, on evidence, as a guess or as a copy, at no cost and without the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from covey.federated import Intake
from covey.federated.training import LocalTraining
from covey.identification.evidence import Evidence
from covey.identification.gradient_loss import GradientLoss
from covey.identification.rescue import HARDLY, MOST, PATIENCE, hear, offer_free_model
from covey.identification.rule import Identification, Regrouped, RuleRound, Trained
from covey.parts import LOCAL_TRAININGS
from covey.privacy import Journal, Ledger
from covey.scenario import load_scenario
from covey.simulation import History, Simulation, simulate

SIZE = 200
#: Two groups of four users on task 0, two users of one group on task 1; tasks 2 and 3 are free.
TASKS_OF = np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1])
GROUPS = np.array([0, 1, 0, 1, 0, 1, 0, 1, 2, 2])
CLEAR, HEAVY = 0.02, 5.0
COLLIDING = (1000, 1002, 1004)


@dataclass
class Stage:
    """A run without users: steps of groups are unit vectors, and all uploads arrive."""

    identities: np.ndarray
    groups: np.ndarray
    noise: float = CLEAR
    mode: str = "none"
    first_tasks: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        self.scenario = load_scenario(
            "paper_digits", [f"security.mode={self.mode}", f"clustering.first_tasks={self.first_tasks}"]
        )
        self.training: LocalTraining = LOCAL_TRAININGS.build("step", self.scenario)
        self.samples = 50 + np.arange(len(self.groups)) % 3
        self.models = np.random.default_rng(7).standard_normal((4, SIZE)).astype(np.float32)

    def at(self, round: int, memory: dict[str, np.ndarray]) -> RuleRound:
        users = len(self.groups)
        return RuleRound(
            round=round, seed=self.seed, scenario=self.scenario, fleet=None, training=self.training,  # type: ignore[arg-type]
            samples=self.samples, clip=np.ones(users), truth=np.full(users, -1), models=self.models,
            movements=np.zeros_like(self.models), identities=self.identities, exhausted=np.zeros(users, bool),
            ledger=Ledger(users, delta=1e-5), journal=Journal(), memory=memory,
        )  # fmt: skip

    def trained(self, round: int, served: np.ndarray) -> Trained:
        rng = np.random.default_rng([self.seed, round])
        served = served[self.identities[served] >= 0] if self.mode == "none" else served
        tasks = np.maximum(self.identities, 0)
        steps = np.eye(int(self.groups.max()) + 1, SIZE)[self.groups] + 0.01 * rng.standard_normal(
            (len(self.groups), SIZE)
        )
        noise_std = np.full(len(self.groups), self.noise) * self.samples / self.scenario.training.learning_rate
        weights = self.models[tasks] + steps + self.noise * rng.standard_normal(steps.shape)
        totals, models = np.zeros(4), self.models.copy()
        for task in range(4):
            mine = served[tasks[served] == task]
            totals[task] = self.samples[mine].sum()
            if len(mine):
                models[task] = np.average(weights[mine], axis=0, weights=self.samples[mine])
        return Trained(
            Intake(served, weights[served].astype(np.float32), np.ones(len(served), bool), {}),
            np.isin(np.arange(len(self.groups)), served),
            noise_std,
            models,
            models - self.models,
            totals,
            self.models,
        )

    def play(self, rounds: int, served: np.ndarray | None = None) -> list[Regrouped]:
        """What was made of each of `rounds` rounds, in which everybody keeps its task."""
        served = np.arange(len(self.groups)) if served is None else served
        memory: dict[str, np.ndarray] = {}
        found = []
        for number in range(rounds):
            at = self.at(number, memory)
            identification = Identification(self.identities, at.ledger, memory=memory)
            plain = Regrouped(self.identities, memory)
            found.append(offer_free_model(at, identification, self.trained(number, served), plain))
            memory = dict(found[-1].memory)
        return found


def offers(found: list[Regrouped]) -> list[tuple[int, str]]:
    return [(offer.round, offer.reason) for one in found for offer in one.offers]


def test_a_free_model_goes_to_one_group_and_the_other_keeps_the_tasks() -> None:
    for seed in range(10):
        stage = Stage(TASKS_OF, GROUPS, seed=seed)
        found = stage.play(PATIENCE)
        assert offers(found) == [(PATIENCE - 1, "evidence")]
        last, trained = found[-1], stage.trained(PATIENCE - 1, np.arange(10))
        (offer,) = last.offers
        assert (offer.task, offer.source) == (2, 0)
        assert set(offer.users) in ({0, 2, 4, 6}, {1, 3, 5, 7})
        assert offer.gain > 5
        goes, stays = np.array(offer.users), np.setdiff1d(np.arange(8), offer.users)
        for task, users in ((2, goes), (0, stays)):
            mean = np.average(trained.intake.weights[users], axis=0, weights=stage.samples[users])
            np.testing.assert_allclose(last.models[task], mean, atol=1e-5)
            # Movements count from the model that all of them started from.
            np.testing.assert_allclose(last.movements[task], mean - stage.models[0], atol=1e-5)
        np.testing.assert_array_equal(last.models[[1, 3]], trained.models[[1, 3]])
        assert last.fresh.tolist() == [False, False, True, False]
        # Devices decide for themselves: nobody is moved.
        np.testing.assert_array_equal(last.identities, TASKS_OF)
        assert last.estimate == 3
        assert last.confirmed == 3
        assert not last.alone


def test_the_part_heard_of_most_keeps_the_model() -> None:
    groups = np.array([0, 0, 0, 0, 0, 1, 1, 0, 2, 2])
    (offer,) = Stage(TASKS_OF, groups).play(2)[-1].offers
    assert offer.users == (5, 6)


def test_a_part_that_was_not_heard_in_this_round_waits_for_the_other() -> None:
    """Group 0 alone is served in the round of the offer: the model is made from its steps, and goes to it."""
    stage = Stage(TASKS_OF, GROUPS)
    memory: dict[str, np.ndarray] = {}
    for number, served in enumerate((np.arange(10), np.array([0, 2, 4, 8, 9]))):
        at = stage.at(number, memory)
        trained = stage.trained(number, served)
        found = offer_free_model(at, Identification(TASKS_OF, at.ledger), trained, Regrouped(TASKS_OF, memory))
        memory = dict(found.memory)
    (offer,) = found.offers
    assert set(offer.users) == {0, 2, 4, 6}
    np.testing.assert_array_equal(found.models[0], trained.models[0])


def test_nothing_is_offered_while_devices_make_up_their_minds() -> None:
    found = Stage(TASKS_OF, GROUPS).play(8)
    rounds = [number for number, _ in offers(found)]
    assert rounds[0] == PATIENCE - 1
    assert min(np.diff(rounds)) >= PATIENCE
    assert all(len(one.offers) <= 1 for one in found)


def test_nothing_is_offered_where_every_task_is_of_one_group() -> None:
    found = Stage(np.arange(12) % 3, np.arange(12) % 3).play(12)
    assert offers(found) == []
    assert {(one.estimate, one.confirmed) for one in found} == {(3, 3)}
    assert all(one.models is None and one.fresh is None for one in found)


def test_nothing_is_offered_where_no_model_is_free() -> None:
    tasks = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3])
    groups = np.array([0, 1, 0, 1, 0, 1, 2, 2, 3, 3, 4, 4])
    found = Stage(tasks, groups).play(6)
    assert offers(found) == []
    assert found[-1].estimate == 5


def test_a_model_that_was_hardly_trained_is_offered_once_nobody_has_trained_it_for_a_while() -> None:
    """Task 3 has a user that is never served; it counts as free after `PATIENCE` idle rounds."""
    tasks = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3])
    groups = np.array([0, 1, 0, 1, 0, 1, 2, 2, 3, 3, 3])
    found = Stage(tasks, groups).play(6, served=np.arange(10))
    assert offers(found)[0] == (PATIENCE - 1, "evidence")
    assert found[PATIENCE - 1].offers[0].task == 3
    # A model with two users keeps them, however long they are not served and however little it was trained.
    tasks, groups = np.append(tasks, 3), np.append(groups, 3)
    for trained, free in ((HARDLY, []), (HARDLY + 1, [])):
        memory = {"rescue.trained": np.array([9, 9, 9, trained]), "rescue.idle": np.array([0, 0, 0, 9])}
        stage = Stage(tasks, groups)
        at = stage.at(5, memory)
        heard = stage.trained(5, np.arange(10))
        late = offer_free_model(at, Identification(tasks, at.ledger), heard, Regrouped(tasks, memory))
        assert [offer.task for offer in late.offers] == free


def test_a_model_of_one_user_is_offered_after_twice_the_patience() -> None:
    tasks = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3])
    groups = np.array([0, 1, 0, 1, 0, 1, 2, 2, 3, 3, 3])
    found = Stage(tasks, groups).play(6)
    assert offers(found)[0] == (2 * PATIENCE - 1, "evidence")
    assert found[2 * PATIENCE - 1].offers[0].task == 3


def test_where_noise_hides_groups_the_part_is_a_guess() -> None:
    found = Stage(TASKS_OF, GROUPS, noise=HEAVY).play(2)
    (offer,) = found[-1].offers
    assert offer.reason == "guess"
    assert offer.source == 0, "the task with most users"
    assert 0 < len(offer.users) < 8
    assert set(offer.users) <= set(range(8))


def test_beyond_the_first_models_others_are_added_on_evidence_only() -> None:
    assert offers(Stage(TASKS_OF, GROUPS, noise=HEAVY, first_tasks=2).play(8)) == []
    assert offers(Stage(TASKS_OF, GROUPS, noise=CLEAR, first_tasks=2).play(2)) == [(1, "evidence")]


@pytest.mark.parametrize("mode", ["blind", "masked"])
def test_where_uploads_are_not_seen_the_most_trained_model_is_copied(mode: str) -> None:
    stage = Stage(TASKS_OF, GROUPS, mode=mode)
    found = stage.play(2 * PATIENCE)
    assert offers(found) == [(2 * PATIENCE - 1, "copy")]
    (offer,) = found[-1].offers
    assert (offer.source, offer.users) == (0, ())
    np.testing.assert_array_equal(found[-1].models[offer.task], found[-1].models[0])
    np.testing.assert_array_equal(found[-1].movements[offer.task], found[-1].movements[0])
    assert offer.task in (2, 3), "nobody has trained it"
    # Single uploads leave no trace in what is remembered.
    assert not any(one.memory["evidence.counts"].any() for one in found)
    assert {(one.estimate, one.confirmed) for one in found} == {(-1, -1)}


@pytest.mark.parametrize("mode", ["blind", "masked"])
def test_stations_that_do_not_know_tasks_go_by_trained_models_alone(mode: str) -> None:
    """A simulation knows the tasks, a deployment does not; both must offer the same."""
    stage = Stage(TASKS_OF, GROUPS, mode=mode)
    trained = stage.trained(9, np.arange(8))
    memory = {"rescue.trained": np.array([9, 9, 9, 0]), "rescue.idle": np.array([0, 0, 9, 9])}
    at = stage.at(9, memory)
    found = [
        offer_free_model(at, Identification(tasks, at.ledger), trained, Regrouped(tasks, memory))
        for tasks in (TASKS_OF, np.full(10, -1), np.array([0, 1, 2, 3, 0, 1, 2, 3, 0, 1]))
    ]
    assert len(found[0].offers) == 1
    assert found[0].offers == found[1].offers == found[2].offers
    for one in found[1:]:
        np.testing.assert_array_equal(one.models, found[0].models)
    np.testing.assert_array_equal(found[0].identities, TASKS_OF)


@pytest.mark.parametrize("mode", ["blind", "masked"])
def test_a_model_whose_sum_stayed_closed_is_not_free(mode: str) -> None:
    """Too few uploads for a task are not opened; their number is known, and says that somebody uses the model."""
    stage = Stage(TASKS_OF, GROUPS, mode=mode)
    trained = stage.trained(9, np.arange(8))
    memory = {"rescue.trained": np.full(4, 9), "rescue.idle": np.array([0, 5, 5, 0])}
    at = stage.at(9, memory)
    for counts, free in (([8, 1, 0, 1], [2]), ([8, 0, 1, 1], [1]), ([8, 1, 1, 1], []), ([-1, -1, -1, -1], [])):
        heard = replace(trained, counts=np.array(counts))
        found = offer_free_model(at, Identification(TASKS_OF, at.ledger), heard, Regrouped(TASKS_OF, memory))
        assert [offer.task for offer in found.offers] == free


def test_a_task_of_many_users_is_judged_by_some_of_them() -> None:
    users = 3 * MOST
    found = Stage(np.zeros(users, np.int64), np.arange(users) % 2).play(2)
    (offer,) = found[-1].offers
    assert offer.reason == "evidence"
    assert len(offer.users) <= MOST
    assert len({user % 2 for user in offer.users}) == 1


def test_uploads_that_were_turned_away_are_no_evidence() -> None:
    stage = Stage(TASKS_OF, GROUPS)
    trained = stage.trained(0, np.arange(10))
    at = stage.at(0, {})
    accepted = np.arange(10) != 3
    evidence = hear(
        at, Identification(TASKS_OF, at.ledger), replace(trained, intake=replace(trained.intake, accepted=accepted))
    )
    assert 3 not in evidence.heard_users
    # Users of different tasks started from different models.
    _, _, known = evidence.among(np.array([0, 8]))
    assert not known[0, 1]
    assert isinstance(evidence, Evidence)


def play(*overrides: str, seed: int, rounds: int = 8) -> History:
    return simulate(
        load_scenario("paper_digits", ["clustering.rescue=true", *overrides, f"training.rounds={rounds}"]), seed=seed
    )


@pytest.mark.parametrize("seed", COLLIDING)
def test_groups_that_collide_come_apart_and_rho_is_for_uploads_alone(seed: int) -> None:
    stuck, rescued = play("clustering.rescue=false", seed=seed), play(seed=seed)
    assert stuck.column("clustering_accuracy")[-1] < 1.0
    assert rescued.column("clustering_accuracy")[-1] == 1.0
    assert (stuck.column("offered_task") == -1).all()
    first = next(record for record in rescued.records if record.offered_task >= 0)
    assert first.offered_reason == 1
    # It goes to users of one group, whose task others share.
    source = first.users.identity == first.offered_source
    assert len(set(first.users.group[source].tolist())) > 1
    for history in (stuck, rescued):
        served = history.user_column("station") >= 0
        noise = np.where(served, history.user_column("noise_std"), np.inf)
        np.testing.assert_allclose(
            history.user_column("rho"), (2 * history.clip**2 / noise**2).cumsum(axis=0), rtol=1e-9
        )
        assert not history.user_column("rho_identity").any()
    # Nothing differs before the first offer.
    for one, other in zip(stuck.records[: first.round], rescued.records, strict=False):
        np.testing.assert_array_equal(one.users.rho, other.users.rho)
        np.testing.assert_array_equal(one.users.identity, other.users.identity)


@pytest.mark.parametrize(
    ("overrides", "seed"),
    [([], 1002), (["clustering.start=release"], 1004), (["security.mode=blind"], 1002)],
    ids=["plain", "release", "blind"],
)
def test_offers_do_not_use_the_truth(overrides: list[str], seed: int) -> None:
    """With the labels of all groups shuffled, everything but the measures is the same."""
    scenario = load_scenario("paper_digits", ["clustering.rescue=true", *overrides])
    runs = []
    for shuffled in (False, True):
        with Simulation(scenario, seed=seed) as run:
            data = run.world.data
            if shuffled:
                groups = np.random.default_rng(3).permutation(run.world.groups)
                run.world = replace(run.world, groups=groups, data=replace(data, groups=groups))
            runs.append(([run.play() for _ in range(6)], run.state))
    (plain, state), (mixed, other) = runs
    assert any(record.offered_task >= 0 for record in plain)
    keys = ("starting", "groups_estimate", "groups_confirmed", *(f"offered_{k}" for k in ("task", "source", "users")))
    for one, two in zip(plain, mixed, strict=True):
        assert [getattr(one, key) for key in keys] == [getattr(two, key) for key in keys]
        np.testing.assert_array_equal(one.users.identity, two.users.identity)
    assert state.models.tobytes() == other.models.tobytes()
    assert [r.clustering_accuracy for r in plain] != [r.clustering_accuracy for r in mixed]


@pytest.mark.parametrize("changes", [["clustering.announce_rounds=1"], ["clustering.announce_every=5"]], ids=" ".join)
def test_nothing_is_offered_that_users_could_not_announce(changes: list[str]) -> None:
    for seed in COLLIDING:
        history = play(*changes, seed=seed, rounds=9)
        offered = {int(record.round) for record in history.records if record.offered_task >= 0}
        # Records count from 1; users announce in rounds 2, 7, 12, ... or in round 2 alone.
        assert offered == ({6} if "every" in changes[0] else set())


class SilentAfterTheFirst(GradientLoss):
    """A rule with announcements of its own: in round 1 alone."""

    def announces(self, number: int) -> bool:
        return number == 1


def test_offers_go_by_the_rounds_in_which_the_rule_announces() -> None:
    name = f"{__name__}:SilentAfterTheFirst"
    for seed in COLLIDING:
        assert (play(seed=seed).column("offered_task") >= 0).any()
        assert (play(f"clustering.rule={name}", seed=seed).column("offered_task") == -1).all()
