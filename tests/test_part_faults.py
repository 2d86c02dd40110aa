"""Parts with mistakes: one sentence that names the part, with the documented exit code, before round 1 where it can."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import pytest
from torch import nn

import covey
from covey.association import quick_policies
from covey.cli.main import main
from covey.data import Dataset, UserData
from covey.data.over_time import DataOverTime
from covey.errors import CoveyError, DataError, PartWarning, PolicyError, ScenarioError
from covey.federated import Accepted, Aggregation, LocalTraining, Step
from covey.identification import Identification, Rule, ScoreRule
from covey.parts import POLICIES
from covey.uplink import Uplink

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
        ("NeedsText", "whose needs are the text 'gradients'; write needs = frozenset({'gradients'})"),
        ("NeedsMisspelt", "did you mean 'gradients'?"),
    ],
)
def test_a_rule_with_a_mistake_is_named(part: str, words: str) -> None:
    said = refused(f"clustering.rule={HERE}:{part}")
    assert f"{HERE}:{part}" in said
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


@pytest.mark.parametrize(
    ("part", "words"),
    [
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
        ("Half", "abstract methods"),
    ],
)
def test_local_training_with_a_mistake_is_named(part: str, words: str) -> None:
    said = refused(f"training.local={HERE}:{part}", rounds=1)
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
