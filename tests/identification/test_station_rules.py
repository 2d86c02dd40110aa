"""Rules in which stations group users by their uploads: what all of them must do in whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.deploy.near import NearCourier, deployed, make_devices, run_folder, small

from covey.errors import ScenarioError
from covey.federated import Steps
from covey.federated.training import least_noise
from covey.identification import Identification, Rule, RuleRound
from covey.parts import RULES
from covey.scenario import load_scenario
from covey.simulation import History, Simulation, simulate
from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint

RULES_OF_STATIONS = ["mixture", "bipartition", "fesem"]


class Asking(Rule):
    """Has every user upload from one model, by draws of its own, and remembers the uploads."""

    uploads: ClassVar[int] = 1
    purpose: ClassVar[str] = "asking"

    def find(self, at: RuleRound) -> Identification:
        found = least_noise(at.scenario.privacy, at.training, at.clip, at.samples)
        users, ledger = np.arange(at.users), at.ledger.copy()
        ledger.charge(users, found)
        at.journal.record(at.round, "gradient", users, found)
        steps = Steps(
            users, None, at.clip, found.noise_std, at.training.learning_rate, at.scenario.training.batch, at.samples,
            purpose=self.purpose, base=at.models[0].copy(),
        )  # fmt: skip
        sent = at.fleet.release(at.round, steps).uploads
        return Identification(at.identities, ledger, memory={"sent": np.stack([upload.weights for upload in sent])})


class AskingOtherwise(Asking):
    purpose: ClassVar[str] = "asking otherwise"


def test_a_rule_of_ones_own_names_its_draws_as_it_likes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(RULES, "_registered", {"asking": Asking, "otherwise": AskingOtherwise})
    told = {}
    for name in ("asking", "otherwise"):
        with Simulation(small(f"clustering.rule={name}"), seed=0) as run:
            run.play()
            run.play()
            told[name] = run.state.memory["sent"]
    assert not np.allclose(told["asking"], told["otherwise"])
    test_devices_train_the_models_of_the_simulator("asking", tmp_path)


def equal(a: History, b: History) -> bool:
    rows = [[json.dumps(record.scalars()) for record in history.records] for history in (a, b)]
    identities = [history.user_column("identity") for history in (a, b)]
    return rows[0] == rows[1] and np.array_equal(*identities) and np.array_equal(a.models, b.models)


@pytest.mark.parametrize("rule", RULES_OF_STATIONS)
def test_resumed_and_shared_runs_have_the_same_bits(rule: str, tmp_path: Path) -> None:
    scenario = load_scenario("quick", [f"clustering.rule={rule}", "training.rounds=6"])
    whole = simulate(scenario, seed=1006)
    assert equal(whole, simulate(scenario, seed=1006, workers=2))
    for stop in (1, 3):  # while steps are gathered, and after models were made of them
        with Simulation(scenario, seed=1006) as first:
            for _ in range(stop):
                first.play()
            save_checkpoint(first, tmp_path)
        with Simulation(scenario, seed=1006) as second:
            restore_checkpoint(second, tmp_path)
            while not second.done:
                second.play()
            assert equal(whole, second.history)


@pytest.mark.parametrize("rule", RULES_OF_STATIONS)
@pytest.mark.parametrize("mode", ["blind", "masked"])
def test_stations_that_see_no_single_upload_refuse(rule: str, mode: str) -> None:
    with pytest.raises(ScenarioError, match=f"clustering.rule is '{rule}', which needs stations that see every single"):
        simulate(load_scenario("quick", [f"clustering.rule={rule}", f"security.mode={mode}"]), rounds=1)


@pytest.mark.parametrize("rule", RULES_OF_STATIONS)
def test_devices_train_the_models_of_the_simulator(rule: str, tmp_path: Path) -> None:
    scenario = small(f"clustering.rule={rule}")
    devices = make_devices(scenario, 3, tmp_path / "site", metrics=True)
    folder = run_folder(scenario, tmp_path / "run", seed=3, groups=str(tmp_path / "site" / "server" / "groups.csv"))
    found = deployed(NearCourier(devices), folder).history
    expected = simulate(scenario, rounds=4, seed=3)
    np.testing.assert_array_equal(found.models, expected.models)
    np.testing.assert_array_equal(found.user_column("identity"), expected.user_column("identity"))
    np.testing.assert_array_equal(found.ledger.rho, expected.ledger.rho)


@pytest.mark.parametrize("rule", RULES_OF_STATIONS)
def test_rounds_in_which_nobody_is_heard_change_nothing(rule: str) -> None:
    scenario = load_scenario("quick", [f"clustering.rule={rule}"])
    history = simulate(scenario, lambda observation, rng: np.zeros((4, 12), bool), rounds=5)
    assert not history.ledger.rho.any()
    assert np.isfinite(history.models).all()


@pytest.mark.parametrize("rule", [*RULES_OF_STATIONS, "kmeans_debiased", "soft"])
def test_a_rule_says_where_it_comes_from_and_what_it_takes(rule: str) -> None:
    part = RULES.get(rule)
    for fact in (part.paper, part.sees, part.costs, part.suits):
        assert fact.strip() == fact
        assert len(fact) > 10


@pytest.mark.parametrize("rule", RULES_OF_STATIONS)
@pytest.mark.parametrize(
    "overrides",
    [
        ["privacy.noise=off"],
        ["network.users=5", "data.partition=rotation"],
        ["radio.loss_probability=0.5"],
    ],
)
def test_other_settings_run(rule: str, overrides: list[str]) -> None:
    history = simulate(load_scenario("quick", [f"clustering.rule={rule}", *overrides]), rounds=5)
    assert np.isfinite(history.column("loss")).all()
