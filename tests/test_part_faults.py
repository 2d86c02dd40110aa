"""Parts with mistakes: one sentence that names the part, with the documented exit code, before round 1 where it can."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import pytest
import torch
from torch import nn

import covey
from covey.association import quick_policies
from covey.cli.main import main
from covey.data import Dataset, UserData
from covey.data.over_time import DataOverTime
from covey.errors import CoveyError, DataError, PartWarning, PolicyError, ScenarioError
from covey.federated import Accepted, Aggregation, LocalTraining, Step
from covey.federated.aggregation import Mean
from covey.federated.personal import Ditto
from covey.identification import Identification, Regrouped, Rule, ScoreRule
from covey.identification.start import IN_PLAY, Start
from covey.parts import POLICIES
from covey.privacy import Ledger
from covey.simulation import Simulation
from covey.uplink import AirTime, Uplink
from covey.uplink.ofdma import Ofdma

HERE = __name__


def refused(*overrides: str, rounds: int = 2, kind: type[CoveyError] = ScenarioError, **given: Any) -> str:
    """The one sentence that a run ends with."""
    with pytest.raises(kind, match=r"^[^\n]*$") as error:
        covey.simulate(covey.load_scenario("quick", list(overrides)), rounds=rounds, **given)
    return str(error.value)


class Told(ScoreRule):
    """Tells what its subclasses say."""

    def told(self, losses, similarity):
        return self.said(losses.argmin(axis=1))


class Floats(Told):
    def said(self, tasks):
        return tasks + 0.5


class Below(Told):
    def said(self, tasks):
        return np.full(len(tasks), -5)


class Beyond(Told):
    def said(self, tasks):
        return tasks + 10


class Fewer(Told):
    def said(self, tasks):
        return tasks[:-1]


class Nothing(Told):
    def said(self, tasks):
        return None


class Truth(Told):
    def said(self, tasks):
        return tasks > 0


class Raises(Told):
    def said(self, tasks):
        raise KeyError("boom")


class NoAnswer(Told):
    def said(self, tasks):
        return np.full(len(tasks), -1)


class OneArgument(ScoreRule):
    def told(self, losses):
        return losses.argmin(axis=1)


class NoTold(ScoreRule):
    pass


class NoFind(Rule):
    pass


class NoSuper(ScoreRule):
    def __init__(self, scenario):
        pass


class FoundShape(Rule):
    def find(self, at):
        return Identification(at.identities[:-1], at.ledger)


class FoundArray(Rule):
    def find(self, at):
        return at.identities


class RemembersObjects(Rule):
    def find(self, at):
        return Identification(at.identities, at.ledger, memory={"mine": np.array([{}])})


class AfterNothing(Told):
    def said(self, tasks):
        return tasks

    def after_round(self, at, found, trained):
        return None


class NeedsText(NoAnswer):
    needs: ClassVar[Any] = "gradients"


class NeedsMisspelt(NoAnswer):
    needs: ClassVar[frozenset[str]] = frozenset({"gradient"})


class NoRule:
    def __init__(self, scenario):
        pass


class Charges(Rule):
    """Finds the tasks of before, and gives a ledger."""

    def find(self, at):
        return replace(at.kept(), ledger=self.ledger(at))


class ChargesNothing(Charges):
    def ledger(self, at):
        return None


class ChargesAfresh(Charges):
    def ledger(self, at):
        return Ledger(at.users, delta=at.ledger.delta, adjacency=at.ledger.adjacency, unit=at.ledger.unit)


class ChargesLess(Charges):
    def ledger(self, at):
        ledger = at.ledger.copy()
        ledger.releases -= 1
        return ledger


class ChargesWithoutBudget(Charges):
    def ledger(self, at):
        ledger = at.ledger.copy()
        ledger.budget_rho = np.full(at.users, np.inf)
        ledger.budget_epsilon = 1e9
        return ledger


class ChargesOthers(Charges):
    def ledger(self, at):
        at.ledger.spent["gradient"][:] = 0
        return at.ledger


class ChargesInPlace(Charges):
    def ledger(self, at):
        at.ledger.charge(np.arange(at.users), np.ones(at.users), "identity")
        return at.ledger


class ChargesMore(Charges):
    def ledger(self, at):
        ledger = at.ledger.copy()
        ledger.charge(np.arange(at.users), np.full(at.users, 0.125), "identity")
        at.journal.record(at.round, "identity", np.arange(at.users), np.full(at.users, 0.125))
        return ledger


class RefusesNobody(Rule):
    def find(self, at):
        return replace(at.kept(), refused=np.array([99]))


class UploadersTwice(Rule):
    def find(self, at):
        return replace(at.kept(), uploaders=np.array([1, 1]))


class After(Told):
    def said(self, tasks):
        return tasks

    def after_round(self, at, found, trained):
        return Regrouped(found.identities, **{"memory": found.memory} | self.made(at, trained))


class AfterModels(After):
    def made(self, at, trained):
        return {"models": trained.models * np.float32(np.nan)}


class AfterFresh(After):
    def made(self, at, trained):
        return {"fresh": np.ones(17, bool)}


class AfterNoMemory(After):
    def made(self, at, trained):
        return {"memory": None}


class AfterWrites(After):
    def made(self, at, trained):
        trained.totals[:] = 0
        return {}


class AfterInPlay(After):
    def made(self, at, trained):
        return {"memory": {IN_PLAY: np.ones(at.tasks, bool)}}


class AfterRescue(After):
    def made(self, at, trained):
        return {"memory": {"rescue.last": np.array([99])}}


class AfterOwn(After):
    """Remembers something of its own alone."""

    def told(self, losses, similarity):
        return np.nanargmin(losses, axis=1)

    def made(self, at, trained):
        return {"memory": {"mine": np.array([at.round])}}


class Passes(NoAnswer):
    def passes(self, number, samples):
        return np.full(3, np.nan)


@pytest.mark.parametrize("part", [Floats, Below, Beyond, Fewer, Nothing, Truth])
def test_what_is_told_has_to_be_tasks(part: type) -> None:
    said = refused(f"clustering.rule={HERE}:{part.__name__}")
    assert f'clustering.rule = "{HERE}:{part.__name__}"' in said
    assert "a whole number from 0 to 3, or -1 for no answer" in said


def test_users_without_an_answer_keep_their_task() -> None:
    scenario = covey.load_scenario("quick", [f"clustering.rule={HERE}:NoAnswer", "clustering.rescue=false"])
    identities = covey.simulate(scenario, rounds=3).user_column("identity")
    assert (identities == identities[0]).all()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("Raises", "failed in round 2: KeyError: 'boom'; COVEY_DEBUG=1 shows where"),
        ("NoTold", "failed in round 2: TypeError: NoTold has no `told`"),
        ("NoFind", "failed in round 2: TypeError: NoFind has no `find`"),
        ("OneArgument", "has a `told` that cannot be called with 2 arguments"),
        ("NoSuper", "does not call super().__init__(scenario)"),
        ("NoRule", "gives NoRule, which is not derived from covey.identification.rule.Rule"),
        ("FoundShape", "gave tasks in `find` that are int64 of shape (11,)"),
        ("FoundArray", "gave an object of type ndarray, not a covey.identification.Identification"),
        ("RemembersObjects", "remembers an array of object as 'mine'"),
        ("AfterNothing", "gave None in `after_round`"),
        ("ChargesNothing", "gave None as ledger in `find`; give at.ledger, or a copy of it with charges"),
        ("ChargesAfresh", "lowers `spent['gradient']` of user"),
        ("ChargesLess", "lowers `releases` of user"),
        ("ChargesWithoutBudget", "has another budget_epsilon than the run"),
        ("ChargesOthers", "failed in round 2: ValueError: assignment destination is read-only"),
        ("ChargesInPlace", "let it change a copy"),
        ("RefusesNobody", "gave `refused` in `find` that go from 99 to 99; users are 0 to 11"),
        ("UploadersTwice", "gave `uploaders` in `find` that name a user twice"),
        ("AfterModels", "gave models in `after_round` that hold NaN or infinity"),
        ("AfterFresh", "gave `fresh` in `after_round` that have shape (17,); they must be (4,)"),
        ("AfterNoMemory", "gave None as memory; give arrays by name, or {}"),
        ("AfterWrites", "failed in round 1: ValueError: assignment destination is read-only"),
        ("AfterInPlay", "remembers 'models.in_play', a name that covey keeps for itself"),
        ("AfterRescue", "remembers 'rescue.last', a name that covey keeps for itself"),
        ("Passes", "gave numbers in `passes` that have shape (3,)"),
        ("NeedsText", "whose needs are the text 'gradients'; write needs = frozenset({'gradients'})"),
        ("NeedsMisspelt", "did you mean 'gradients'?"),
    ],
)
def test_a_rule_with_a_mistake_is_named(part: str, words: str) -> None:
    said = refused(f"clustering.rule={HERE}:{part}")
    assert f"{HERE}:{part}" in said
    assert words in said


def test_a_rule_can_charge_a_copy() -> None:
    spent = covey.simulate(covey.load_scenario("quick", [f"clustering.rule={HERE}:ChargesMore"]), rounds=3).ledger.spent
    np.testing.assert_array_equal(spent["identity"], 0.25)


def test_a_rule_with_a_memory_of_its_own_leaves_that_of_others() -> None:
    """Its users never choose a model that was not sent, and stations count for how long models were trained."""
    overrides = ["network.tasks=4", "clustering.first_tasks=2", f"clustering.rule={HERE}:AfterOwn"]
    with Simulation(covey.load_scenario("quick", overrides), rounds=4) as run:
        while not run.done:
            in_play = run.state.memory[IN_PLAY]
            run.play()
            assert in_play[run.state.identities].all()
            assert run.state.memory["mine"] == run.state.round - 1
            assert run.state.memory["rescue.idle"].max() <= run.state.round
            assert run.state.memory["rescue.trained"][in_play].sum() > run.state.round - 1


class NaNModels(Start):
    def models(self, first):
        return first * np.nan


class DoubleModels(Start):
    def models(self, first):
        return first.astype(np.float64)


class OneModel(Start):
    def models(self, first):
        return first[0]


class NoModels(Start):
    def models(self, first):
        raise KeyError("x")


class WritesModels(Start):
    def models(self, first):
        first[:] = 0
        return first


class ThreeBroadcasts(Start):
    def broadcasts(self, capable):
        return np.ones(3)


class RemembersText(Start):
    @property
    def memory(self):
        return {"a": "b"}


class RemembersNone(Start):
    @property
    def memory(self):
        return None


class RemembersTwo(Start):
    @property
    def memory(self):
        return {IN_PLAY: np.ones(2, bool)}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("NaNModels", "made models that hold NaN or infinity"),
        ("DoubleModels", "made models that have type float64; they must be float32"),
        ("OneModel", "made models that have shape (650,); they must be (4, 650)"),
        ("NoModels", "failed before round 1: KeyError: 'x'"),
        ("WritesModels", "failed before round 1: ValueError: assignment destination is read-only"),
        ("ThreeBroadcasts", "gave broadcasts that have shape (3,); they must be (4, 4)"),
        ("RemembersText", "remembers an object of type str as 'a'"),
        ("RemembersNone", "gave None as memory"),
        ("RemembersTwo", "remembers 'models.in_play' that have shape (2,); they must be (4,)"),
    ],
)
def test_a_start_with_a_mistake_is_named(part: str, words: str) -> None:
    said = refused(f"clustering.start={HERE}:{part}")
    assert f"{HERE}:{part}" in said
    assert "start" in said
    assert words in said


class Free(Uplink):
    """Everybody at once, at one rate."""

    def grant(self, observation, station):
        return np.where(station >= 0, 0, -1)

    def rates(self, gains, plan, limits):
        return np.where(plan.served, 1e6, 0.0)


class NoRate(Free):
    def rates(self, gains, plan, limits):
        return np.full(len(gains), np.nan)


class ZeroRate(Free):
    def rates(self, gains, plan, limits):
        return np.zeros(len(gains))


class EndlessRate(Free):
    def rates(self, gains, plan, limits):
        return np.full(len(gains), np.inf)


class OneRate(Free):
    def rates(self, gains, plan, limits):
        return 1e6


class Halves(Free):
    def grant(self, observation, station):
        return np.where(station >= 0, 0.5, -1.0)


class ForAll(Free):
    def grant(self, observation, station):
        return np.zeros_like(station)


class ThreeGrants(Free):
    def grant(self, observation, station):
        return np.zeros(3, dtype=int)


class LongTime(Free):
    def air_time(self, rates, plan, bits):
        return 3.0


class Breaks(Free):
    def grant(self, observation, station):
        raise RuntimeError("grant broke")


class NoRates(Uplink):
    def grant(self, observation, station):
        return np.where(station >= 0, 0, -1)


class BackInTime(Free):
    def air_time(self, rates, plan, bits):
        return AirTime(np.full(len(rates), -1.0), 1.0)


class NoTime(Free):
    def air_time(self, rates, plan, bits):
        return AirTime(np.full(len(rates), np.nan), 1.0)


class TotalText(Free):
    def air_time(self, rates, plan, bits):
        return AirTime(np.ones(len(rates)), "a")


class NoQueue(Free):
    def unscheduled(self, gains, users, bits, limits):
        return None


class NoPlan(Ofdma):
    def project(self, observation, selected):
        return None


class FarPlan(Ofdma):
    def project(self, observation, selected):
        plan = super().project(observation, selected)
        return replace(plan, station=plan.station + 90)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("BackInTime", "gave numbers in `air_time` that are negative, infinite or not a number"),
        ("NoTime", "gave numbers in `air_time` that are negative, infinite or not a number"),
        ("TotalText", "gave 'a' as total_s in `air_time`; give seconds"),
        ("NoQueue", "gave None in `unscheduled`; return a covey.uplink.AirTime"),
        ("NoPlan", "gave NoneType in `project`; return a covey.network.Plan"),
        ("FarPlan", "gave stations in `project` that go from"),
        ("NoRate", "gave rates that are negative, infinite or not a number"),
        ("EndlessRate", "gave rates that are negative, infinite or not a number"),
        ("ZeroRate", "gave rates that are 0 for users that are served"),
        ("OneRate", "gave rates that are float; they must be numbers of shape (12,)"),
        ("Halves", "gave grants that are float64 of shape (12,); they must be whole numbers"),
        ("ForAll", "gave grants that serve users that no station selected"),
        ("ThreeGrants", "gave grants that are int64 of shape (3,)"),
        ("LongTime", "return a covey.uplink.AirTime"),
        ("Breaks", "failed in round 1: RuntimeError: grant broke"),
        ("NoRates", "abstract method rates"),
    ],
)
def test_an_uplink_with_a_mistake_is_named(part: str, words: str) -> None:
    said = refused(f"radio.uplink={HERE}:{part}", rounds=1)
    assert f"{HERE}:{part}" in said
    assert words in said


def test_an_uplink_without_one_plays() -> None:
    scenario = covey.load_scenario("quick", [f"radio.uplink={HERE}:Free"])
    assert (covey.simulate(scenario, rounds=1).user_column("rate_bps") <= 1e6).all()


class Made(Aggregation):
    def combine(self, accepted: Accepted):
        return self.of(accepted.models.copy())


class NotANumber(Made):
    def of(self, models):
        return models * np.float32(np.nan)


class Double(Made):
    def of(self, models):
        return models.astype(np.float64)


class Narrow(Made):
    def of(self, models):
        return models[:, :-1]


class Listed(Made):
    def of(self, models):
        return models.tolist()


class Touched(Made):
    def of(self, models):
        return models + np.float32(1)


class ForgetsAll(Mean):
    def forget(self, memory, replaced):
        return None


class ForgetsOddly(Mean):
    def forget(self, memory, replaced):
        return {"v": object()}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("ForgetsAll", "gave None as memory in `forget`; give arrays by name, or {}"),
        ("ForgetsOddly", "remembers an object of type object as 'v'"),
    ],
)
def test_what_an_aggregation_keeps_after_an_offer_is_checked(part: str, words: str) -> None:
    said = refused(f"training.aggregation={HERE}:{part}", rounds=1)
    assert f"{HERE}:{part}" in said
    assert words in said


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("NotANumber", "hold NaN or infinity"),
        ("Double", "have type float64; they must be float32"),
        ("Narrow", "have shape (4, 649); they must be (4, 650)"),
        ("Listed", "are an object of type list, not an array"),
    ],
)
def test_models_that_an_aggregation_makes_are_checked(part: str, words: str) -> None:
    said = refused(f"training.aggregation={HERE}:{part}", rounds=1)
    assert f"{HERE}:{part}' made models that {words}" in said


def test_a_task_without_uploads_keeps_its_model() -> None:
    def nobody(observation, rng):
        return np.zeros(observation.eligible.shape, dtype=bool)

    assert "keeps its model bit for bit" in refused(f"training.aggregation={HERE}:Touched", policy=nobody)


class Twice(Step):
    def run(self, problem):
        problem.normals(1)
        return super().run(problem)


class Cut(Step):
    def run(self, problem):
        update = super().run(problem)
        return replace(update, weights=update.weights[:-1])


class Silent(Step):
    def run(self, problem):
        return None


class Fails(Step):
    def run(self, problem):
        raise ValueError("train\nbroke")


class Paid(Step):
    def rho(self, clip, noise_std, samples):
        return -super().rho(clip, noise_std, samples)


class Unpaid(Step):
    def rho(self, clip, noise_std, samples):
        return 0.5


class Loud(Step):
    def upload_noise(self, noise_std, samples):
        return None


class LoudInSilence(Step):
    def upload_noise(self, noise_std, samples):
        with np.errstate(invalid="ignore"):
            return noise_std / noise_std


class Far(Step):
    def reach(self, clip, samples, noise_std, length):
        return np.full(len(clip), np.inf)


class HalfSteps(Step):
    def releases(self, clip, noise_std, samples):
        releases = super().releases(clip, noise_std, samples)
        return replace(releases, steps=releases.steps * 1.5)


class Gradients(Step):
    def run(self, problem):
        update = super().run(problem)
        return replace(update, weights=torch.from_numpy(update.weights).requires_grad_())


class Complex(Step):
    def run(self, problem):
        update = super().run(problem)
        return replace(update, weights=update.weights + 1j)


class NormText(Step):
    def run(self, problem):
        return replace(super().run(problem), mean_norm="a")


class KeptCut(Step):
    def run(self, problem):
        update = super().run(problem)
        return replace(update, kept=update.weights[: 1 + problem.samples % 7])


class Half(LocalTraining):
    def run(self, problem):
        return None


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("Twice", "failed in round 1: ValueError: LocalProblem.normals was called twice"),
        ("Cut", "return a LocalUpdate"),
        ("Silent", "return a LocalUpdate"),
        ("Fails", "failed in round 1: ValueError: train broke"),
        ("Paid", "gave costs in `rho` that are negative"),
        ("Unpaid", "gave costs in `rho` that are an object of type float"),
        ("Loud", "gave numbers in `upload_noise` that are None"),
        ("LoudInSilence", "gave numbers in `upload_noise` that are negative, infinite or not a number"),
        ("Far", "gave numbers in `reach` that are negative, infinite or not a number"),
        ("HalfSteps", "the steps of releases are no whole numbers"),
        ("Gradients", "returned a tensor that requires gradients, not its .detach().numpy(),"),
        ("Complex", "returned an array of complex64"),
        ("NormText", "returned str as mean_norm"),
        ("KeptCut", "for kept of shape (650,)"),
        ("Half", "abstract methods"),
    ],
)
def test_local_training_with_a_mistake_is_named(part: str, words: str) -> None:
    said = refused(f"training.local={HERE}:{part}", rounds=1)
    assert f"{HERE}:{part}" in said
    assert words in said


class Spoken(Ditto):
    def run(self, problem):
        return "abc"


class Untrained(Ditto):
    def training(self, local):
        return None


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("Spoken", "returned str for weights of shape (650,)"),
        ("Untrained", "gave NoneType in `training`, not a covey.federated.LocalTraining"),
    ],
)
def test_a_personal_model_with_a_mistake_is_named(part: str, words: str) -> None:
    said = refused(f"training.personal={HERE}:{part}", rounds=1)
    assert f"{HERE}:{part}" in said
    assert words in said


def test_workers_name_parts_too() -> None:
    with pytest.raises(ScenarioError) as error:
        covey.simulate(covey.load_scenario("quick", [f"training.local={HERE}:Fails"]), rounds=1, workers=2)
    said = str(error.value)
    assert f'training.local = "{HERE}:Fails" failed in round 1: ValueError: train broke' in said
    assert "in run" in "".join(error.value.__notes__)


class NoData(DataOverTime):
    def at(self, round: int, first: UserData):
        return None


class MoreGroups(DataOverTime):
    def at(self, round: int, first: UserData) -> UserData:
        return replace(first, groups=first.groups + 50)


class MoreClasses(DataOverTime):
    def at(self, round: int, first: UserData) -> UserData:
        return replace(first, classes=(*first.classes, "z"))


class NoRound(DataOverTime):
    def at(self, first):
        return first


class Transposed:
    def __init__(self, radio, min_distance_m, seed):
        pass

    def gains(self, users_m, stations_m, round):
        return np.ones((len(stations_m), len(users_m)))


class NoGains:
    def __init__(self, radio, min_distance_m, seed):
        pass


class Lost:
    def __init__(self, mobility, area_m):
        pass

    def start(self, positions_m, rng):
        return np.zeros((len(positions_m), 1))

    def move(self, positions_m, memory, duration_s, rng):
        return positions_m * np.nan, memory


class Alone(Lost):
    def move(self, positions_m, memory, duration_s, rng):
        return positions_m


class NoMemory(Lost):
    def start(self, positions_m, rng):
        return None


def loss_number(radio):
    return 3


def loss_row(radio):
    return lambda distance_m: distance_m[0]


def loss_of_distance(distance_m):
    return 30 + 20 * np.log10(distance_m)


def load_one(data):
    return None


def load_fails(data, seed):
    raise FileNotFoundError("no such thing: /x")


def deal_fails(dataset, scenario, seed):
    return UserData.from_users([])


def model_fails(model, sample_shape, classes):
    return model.nothing


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.nothing)


def model_odd(model, sample_shape, classes):
    return Odd()


@pytest.mark.parametrize(
    ("key", "part", "words"),
    [
        ("data.over_time", "NoData", "gave None, not a covey.UserData"),
        ("data.over_time", "MoreGroups", "groups of shape (12,) numbered up to 53"),
        ("data.over_time", "MoreClasses", "they stay those of round 1"),
        ("data.over_time", "NoRound", "has a `at` that cannot be called with 2 arguments"),
        ("radio.channel", "Transposed", "gave gains that have shape (4, 12); they must be (12, 4)"),
        ("radio.channel", "NoGains", "has no `gains`"),
        ("mobility.model", "Lost", "gave positions in `move` that are not finite"),
        ("mobility.model", "Alone", "return the pair (positions, memory)"),
        ("mobility.model", "NoMemory", "gave a memory in `start` that are None"),
        ("radio.path_loss", "loss_number", "is 3, which cannot be called"),
        ("radio.path_loss", "loss_row", "shape (3,) for distances of shape (2, 3)"),
        ("radio.path_loss", "loss_of_distance", "cannot be made (TypeError"),
        ("model.name", "model_fails", "cannot be made (AttributeError"),
        ("model.name", "model_odd", "does not accept samples of shape (1, 8, 8): AttributeError"),
    ],
)
def test_parts_of_a_scenario_with_a_mistake_are_named(key: str, part: str, words: str) -> None:
    said = refused(f"{key}={HERE}:{part}")
    assert part in said or part == "model_odd"
    assert words in said


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data.name", "load_one"], "cannot be called with 2 arguments"),
        (["data.name", "load_fails"], "FileNotFoundError: no such thing: /x"),
        (["data.partition", "deal_fails"], "cannot be made (TypeError"),
    ],
)
def test_sources_of_data_with_a_mistake_are_named(overrides: list[str], words: str) -> None:
    key, part = overrides
    mixes = ["data.mixes=default"] if key == "data.name" else []
    said = refused(f"{key}={HERE}:{part}", *mixes, kind=DataError)
    assert f"{HERE}:{part}" in said
    assert words in said


def load(data, seed) -> Dataset:
    raise DataError("the disk is elsewhere")


def test_errors_raised_on_purpose_pass_unchanged() -> None:
    assert refused(f"data.name={HERE}:load", "data.mixes=default", kind=DataError) == "the disk is elsewhere"


def one_argument(observation):
    return observation.eligible


def divides(observation, rng):
    return 1 // 0


class Wanting:
    def __init__(self, number):
        self.number = number

    def __call__(self, observation, rng):
        return observation.eligible


class Turns:
    def __init__(self):
        self.number = 0

    def __call__(self, observation, rng):
        self.number += 1
        chosen = np.zeros(observation.eligible.shape, dtype=bool)
        user = self.number % chosen.shape[1]
        chosen[observation.eligible[:, user].argmax(), user] = True
        return chosen & observation.eligible


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (one_argument, "cannot be called with 2 arguments"),
        (divides, "failed in round 1: ZeroDivisionError"),
        (Wanting, "cannot be called with 0 arguments"),
        (3, "is 3, which cannot be called"),
    ],
)
def test_policies_with_a_mistake_are_named(policy: Any, words: str) -> None:
    said = refused(policy=policy, kind=PolicyError)
    assert getattr(policy, "__name__", "policy") in said
    assert words in said
    if not isinstance(policy, int):
        assert words in refused(policy=f"{HERE}:{policy.__name__}", kind=PolicyError)


def test_a_class_is_a_policy_and_every_run_gets_a_fresh_one() -> None:
    first, again, named = (
        covey.simulate("quick", policy=policy, rounds=2).user_column("station")
        for policy in (Turns, Turns, f"{HERE}:Turns")
    )
    assert first.tolist() == again.tolist() == named.tolist()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": 3}, "model is 3, not a torch.nn.Module"),
        ({"data": [1]}, "data is [1], not a covey.UserData"),
        ({"channel": object()}, "has no `gains`"),
        ({"mobility": object()}, "has no `start`"),
        ({"transport": 3}, "is 3, which cannot be called"),
        ({"transport": lambda number, uploads: None}, "gave None; return a list of covey.federated.Upload"),
    ],
)
def test_arguments_of_simulate_are_checked(given: dict[str, Any], words: str) -> None:
    assert words in refused(rounds=1, **given)


def test_the_command_ends_with_the_code_of_the_part(tmp_path: Path, capsys, monkeypatch) -> None:
    for options, code in (
        (["--set", f"clustering.rule={HERE}:Raises"], 2),
        (["--set", f"data.name={HERE}:load_fails", "--set", "data.mixes=default"], 3),
        (["--policy", f"{HERE}:divides"], 6),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["run", "quick", "--rounds", "2", "-q", "--out", str(tmp_path / str(code)), *options])
        assert ended.value.code == code
        shown = capsys.readouterr().err.strip()
        assert shown.startswith("Error: ")
        assert "\n" not in shown
    monkeypatch.setenv("COVEY_DEBUG", "1")
    with pytest.raises(PolicyError) as error:
        main(["run", "quick", "--policy", f"{HERE}:divides", "-q", "--out", str(tmp_path / "debug")])
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_real_environment_names_parts() -> None:
    env = covey.parallel_env(covey.load_scenario("quick", [f"training.local={HERE}:Fails"]), learning="real")
    env.reset(seed=0)
    with pytest.raises(ScenarioError, match="failed in round 1: ValueError: train broke"):
        env.step({agent: env.action_space(agent).n - 1 for agent in env.agents})


def test_a_broken_policy_is_left_out_of_comparisons_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICIES, "_registered", {"wanting": Wanting, "turns": Turns})
    with pytest.warns(PartWarning, match="'wanting' cannot be called.*left out"):
        quick = quick_policies()
    assert "turns" in quick
    assert "greedy" in quick
    assert "wanting" not in quick


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{HERE}:Turn", f"did you mean '{HERE}:Turns'?"),
        ("mine.py:Turns", "did you mean 'mine:Turns'? A module is written as in an import"),
        ("./sub/mine:Turns", "did you mean 'sub.mine:Turns'?"),
    ],
)
def test_misspelt_references_get_a_suggestion(name: str, words: str) -> None:
    with pytest.raises(PolicyError) as error:
        POLICIES.get(name)
    assert words in str(error.value)


class CountedSteps(Step):
    """Counts its calls, which differs by the number of workers."""

    def __init__(self, scenario):
        super().__init__(scenario)
        self.calls = 0

    def run(self, problem):
        self.calls += 1
        return replace(super().run(problem), mean_norm=float(self.calls))


class Drifting(Ditto):
    """Adds to its model what it remembers of earlier calls."""

    def __init__(self, scenario):
        super().__init__(scenario)
        self.seen = [0]

    def run(self, problem):
        self.seen.append(1)
        return super().run(problem) + np.float32(sum(self.seen))


class Steady(Ditto):
    """Has attributes that do not change, one that cannot be pickled, and one that is computed once."""

    def __init__(self, scenario):
        super().__init__(scenario)
        self.table, self.hook = np.arange(5.0), lambda: None

    @cached_property
    def half(self):
        return 0.5

    def run(self, problem):
        return super().run(problem) * np.float32(2 * self.half)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("key", "part", "attribute"),
    [("training.local", "CountedSteps", "calls"), ("training.personal", "Drifting", "seen")],
)
def test_a_part_that_remembers_is_refused_at_any_number_of_workers(
    key: str, part: str, attribute: str, workers: int
) -> None:
    scenario = covey.load_scenario("quick", [f"{key}={HERE}:{part}", "network.users=6"])
    with pytest.raises(ScenarioError) as error:  # notes hold the traceback of a worker
        covey.simulate(scenario, rounds=2, workers=workers)
    found = str(error.value)
    assert found.startswith(f"{key} = \"{HERE}:{part}\" changed its attribute '{attribute}' in `run`")
    assert found.endswith("let `run` depend on its argument alone, and keep caches outside of the object")


def test_attributes_that_stay_as_they_are_change_nothing() -> None:
    own, usual = (
        covey.simulate(covey.load_scenario("quick", [f"training.personal={name}"]), rounds=2)
        for name in (f"{HERE}:Steady", "ditto")
    )
    assert own.column("personal_accuracy").tolist() == usual.column("personal_accuracy").tolist()


def leaves(*given: Any) -> NoReturn:
    """Ends the program as if it had succeeded."""
    sys.exit(0)


class Leaves(Step):
    def __init__(self, scenario):
        sys.exit(0)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["--policy", f"{HERE}:leaves"], 6),
        (["--set", f"data.transform={HERE}:leaves"], 3),
        (["--set", f"training.local={HERE}:Leaves"], 2),
        (["--set", f"training.loss={HERE}:leaves"], 2),
        (["--set", f"radio.path_loss={HERE}:leaves"], 2),
    ],
    ids=lambda given: given[-1].partition("=")[0] if isinstance(given, list) else "",
)
def test_a_part_that_ends_the_program_fails_the_run(
    given: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "quick", "--rounds", "1", "--no-reference", "-q", "--out", str(tmp_path / "a"), *given])
    error = " ".join(capsys.readouterr().err.split())
    assert end.value.code not in (0, None)
    assert end.value.code == code, error
    assert "SystemExit" in error
    assert "lea" in error.lower()


def test_whoever_else_ends_the_program_does_not_look_successful(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("covey.cli.run_loop.load_scenario", leaves)
    with pytest.raises(SystemExit) as end:
        main(["run", "quick"])
    assert end.value.code == 1
    assert "sys.exit(0)" in capsys.readouterr().err
