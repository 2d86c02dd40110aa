"""Personal models: Ditto by hand, the same bits everywhere, nothing of them anywhere but on the device."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from covey.deploy.device_fleet import DeviceFleet
from covey.environment.calibration import learning_hash
from covey.errors import ScenarioError
from covey.federated import Ditto, NoPersonal, Personal, PersonalProblem, flatten, load_flat
from covey.parts import PERSONALS, refuse_unmet
from covey.scenario import Scenario, load_scenario
from covey.simulation import History, Simulation, simulate
from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint
from covey.simulation.record import USER_FIELDS
from covey.simulation.run import user_data

#: Columns that a run with personal models may change: those of the models, and what training them costs.
OWN = {
    "personal_test_loss", "personal_accuracy", "group_personal_accuracy", "compute_s", "compute_energy_j", "delay_s",
}  # fmt: skip


def ditto(*more: str) -> Scenario:
    return load_scenario("quick", ["training.personal='ditto'", *more])


@pytest.fixture(scope="module")
def played() -> History:
    return simulate(ditto(), rounds=4)


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def test_a_step_of_ditto_by_hand() -> None:
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.normal(size=(7, 64)).astype(np.float32)), torch.from_numpy(rng.integers(10, size=7))
    own, received = (rng.normal(size=650).astype(np.float32) for _ in range(2))
    scenario = ditto("training.personal_steps=3", "training.personal_pull=0.7", "training.personal_rate=0.2")
    found = Ditto(scenario).run(PersonalProblem(network(), own, received, lambda: (x, y)))
    expected = own.astype(np.float64)
    for _ in range(3):
        weight, bias = expected[:640].reshape(10, 64), expected[640:]
        logits = x.numpy() @ weight.T + bias
        shares = np.exp(logits - logits.max(1, keepdims=True))
        wrong = shares / shares.sum(1, keepdims=True) - np.eye(10)[y.numpy()]
        gradient = np.concatenate([(wrong.T @ x.numpy() / 7).ravel(), wrong.mean(0)])
        expected = expected - 0.2 * (gradient + 0.7 * (expected - received))
    assert np.allclose(found, expected, atol=1e-4)


def test_a_strong_pull_ends_at_the_received_model_and_none_at_training_alone() -> None:
    data = user_data(ditto(), 0)
    rows = slice(int(data.offsets[3]), int(data.offsets[4]))
    x, y = torch.from_numpy(data.x[rows].copy()), torch.from_numpy(data.y[rows].copy())
    received = np.random.default_rng(1).normal(size=650).astype(np.float32)
    strong = ditto("training.personal_pull=9.5", "training.personal_steps=100")
    near = Ditto(strong).run(PersonalProblem(network(), np.zeros(650, np.float32), received, lambda: (x, y)))
    assert np.abs(near - received).max() < 0.3 < np.abs(received).max()
    alone = ditto("training.personal_pull=0", "training.personal_steps=300")
    far = Ditto(alone).run(PersonalProblem(network(), received, received, lambda: (x, y)))
    model = network()
    load_flat(model, far)
    assert float(functional.cross_entropy(model(x), y).detach()) < 0.1
    unpulled = Ditto(alone).run(PersonalProblem(network(), received, np.zeros_like(received), lambda: (x, y)))
    assert unpulled.tobytes() == far.tobytes()


def test_the_task_models_and_all_charges_are_those_of_a_run_without(played: History) -> None:
    without = simulate("quick", rounds=4)
    assert played.models.tobytes() == without.models.tobytes()
    assert played.ledger.to_dict() == without.ledger.to_dict()
    for one, other in zip(played.records, without.records, strict=True):
        for name, value in one.scalars().items():
            if name not in OWN:
                assert np.array_equal(value, getattr(other, name), equal_nan=True), name
        for name in set(USER_FIELDS) - OWN - {"energy_j"}:
            assert np.array_equal(getattr(one.users, name), getattr(other.users, name), equal_nan=True), name
    assert np.isnan(without.column("personal_accuracy")).all()


def test_personal_models_are_measured_beside_the_task_models(played: History) -> None:
    last = played.records[-1]
    assert last.personal_accuracy > last.accuracy
    assert last.personal_test_loss < last.test_loss
    assert last.personal_accuracy == pytest.approx(last.users.personal_accuracy.mean())
    assert played.summary()["final"]["personal_accuracy"] == last.personal_accuracy


def test_the_model_of_a_round_follows_from_the_one_before_and_the_broadcast() -> None:
    with Simulation(ditto(), rounds=2) as simulation:
        first = simulation.state
        assert not first.personal_begun.any()
        record = simulation.play()
        after, data, user = simulation.state, simulation.data, 5
        assert after.personal_begun.all()
        assert data is not None
        engine = simulation.world.engine
        task = int(record.users.identity[user])
        engine.publish(first.models, first.movements)
        again, loss, right = engine.personalise(
            simulation.world.personal, 0, np.array([user]), np.array([task]), [None]
        )
        assert again[0].tobytes() == after.personal[user].tobytes()
        model = network()
        load_flat(model, after.personal[user])
        rows = slice(int(data.test_offsets[user]), int(data.test_offsets[user + 1]))
        x, y = torch.from_numpy(data.test_x[rows].copy()), torch.from_numpy(data.test_y[rows].copy())
        assert right[0] == int((model(x).argmax(1) == y).sum())
        expected = functional.cross_entropy(model(x), y, reduction="sum").item()
        assert loss[0] == pytest.approx(expected, rel=1e-5)
        assert record.users.personal_accuracy[user] == right[0] / len(y)
        assert flatten(model).tobytes() == after.personal[user].tobytes()


def test_the_same_bits_at_two_workers(played: History) -> None:
    shared = simulate(ditto(), rounds=4, workers=2)
    for name in ("personal_test_loss", "personal_accuracy"):
        assert shared.user_column(name).tobytes() == played.user_column(name).tobytes()
    assert shared.models.tobytes() == played.models.tobytes()


def test_a_resumed_run_ends_with_the_same_personal_models(played: History, tmp_path: Path) -> None:
    with Simulation(ditto(), rounds=4) as simulation:
        for _ in range(2):
            simulation.play()
        save_checkpoint(simulation, tmp_path)
    with Simulation(ditto(), rounds=4) as whole, Simulation(ditto(), rounds=4) as simulation:
        restore_checkpoint(simulation, tmp_path)
        while not simulation.done:
            simulation.play()
        while not whole.done:
            whole.play()
        assert simulation.state.personal.tobytes() == whole.state.personal.tobytes()
        assert simulation.history.user_column("personal_test_loss").tobytes() == (
            played.user_column("personal_test_loss").tobytes()
        )


def test_training_it_takes_time_and_energy_of_every_device(played: History) -> None:
    without = simulate("quick", rounds=1).records[0]
    first = played.records[0]
    assert first.compute_s > without.compute_s
    assert first.compute_energy_j > without.compute_energy_j
    assert first.uplink_s == without.uplink_s
    assert (first.users.energy_j > without.users.energy_j).all()  # whether a user was served or not
    assert Ditto(ditto("training.personal_batch=0")).passes(np.array([60, 90])).tolist() == [600, 900]
    assert Ditto(ditto()).passes(np.array([20, 90])).tolist() == [200, 320]


def test_masks_hide_nothing_that_personal_models_need() -> None:
    history = simulate(ditto("security.mode='blind'"), rounds=2)
    assert np.isfinite(history.user_column("personal_accuracy")).all()


def test_a_step_size_at_which_it_diverges_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"personal model of user \d+ is not finite after round 1; lower training"):
        simulate(ditto("training.personal_rate=1e12", "training.personal_pull=0", "model.name=mlp"), rounds=1)


def test_devices_elsewhere_refuse_before_round_1() -> None:
    lacks = DeviceFleet.lacks.fget  # type: ignore[attr-defined]
    lacking = lacks(SimpleNamespace(scenario=ditto()))
    words = re.escape('devices do not keep models of their own yet; set training.personal = "none"')
    with pytest.raises(ScenarioError, match=words):
        refuse_unmet("training.personal", "ditto", Ditto.needs, lacking)
    refuse_unmet("training.personal", "none", NoPersonal.needs, lacking)


class Halfway(Personal):
    """Half of the way from the personal model to the received one."""

    def run(self, problem: PersonalProblem) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.asarray((problem.weights + problem.received) / 2, dtype=np.float32)

    def passes(self, samples: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return samples


class Short(Halfway):
    """Returns too few weights."""

    def run(self, problem: PersonalProblem) -> np.ndarray[Any, np.dtype[np.float32]]:
        return problem.weights[:5]


class Uncounted(Halfway):
    """Says nothing useful about its passes."""

    def passes(self, samples: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
        return 3


class Broken(Halfway):
    """Raises."""

    def run(self, problem: PersonalProblem) -> np.ndarray[Any, np.dtype[np.float32]]:
        raise KeyError("nothing")


def test_a_part_of_ones_own() -> None:
    PERSONALS.register("halfway", Halfway)
    with Simulation(replace_personal("halfway"), rounds=1) as simulation:
        first = simulation.state.models
        record = simulation.play()
        # The first personal model is the received one, and halfway from it to itself.
        assert simulation.state.personal.tobytes() == first[record.users.identity].tobytes()


def replace_personal(name: str) -> Scenario:
    return load_scenario("quick", [f"training.personal='{name}'"])


@pytest.mark.parametrize(
    ("part", "words"),
    [(Short, "returned"), (Uncounted, "gave numbers in `passes` that are"), (Broken, "failed in round 1: KeyError")],
)
def test_faults_of_a_part_of_ones_own_are_named(part: type[Personal], words: str) -> None:
    PERSONALS.register(f"faulty_{part.__name__}", part)
    with pytest.raises(ScenarioError, match=words) as caught:
        simulate(replace_personal(f"faulty_{part.__name__}"), rounds=1)
    assert f"faulty_{part.__name__}" in str(caught.value)


def test_a_misspelt_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'ditto'"):
        load_scenario("quick", ["training.personal='dito'"])


def test_a_state_holds_personal_models_only_where_there_are_some() -> None:
    with Simulation("quick", rounds=1) as simulation:
        assert simulation.state.personal.size == 0
        simulation.play()
        assert simulation.state.personal.size == 0
        assert replace(simulation.state).personal_begun.size == 0


def test_calibrations_do_not_depend_on_it() -> None:
    assert learning_hash(ditto("training.personal_steps=3", "training.personal_pull=2")) == learning_hash(
        load_scenario("quick")
    )


def test_a_pull_that_is_too_strong_for_the_step_size_is_refused_before_round_1() -> None:
    with pytest.raises(
        ScenarioError, match=r"at a training.personal_rate of 0.1, .* set training.personal_pull to 10 or"
    ):
        simulate(ditto("training.personal_pull=20"), rounds=1)
    Ditto(ditto("training.personal_pull=19.9"))


@pytest.mark.parametrize("option", ["steps=3", "pull=0.3", "batch=0", "rate=0.2"])
def test_without_personal_models_their_options_are_refused(option: str) -> None:
    key = f"training.personal_{option.partition('=')[0]}"
    with pytest.raises(ScenarioError, match=f"but training.personal is 'none', .* put it back with {key}=default"):
        simulate(load_scenario("quick", [f"training.personal_{option}"]), rounds=1)
