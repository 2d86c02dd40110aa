"""The central model: well trained, blind to test labels, the same bits, kept by content."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from covey.data import UserData
from covey.errors import ScenarioError
from covey.evaluation import Central, central
from covey.federated import initial_weights, load_flat
from covey.jobs import Store
from covey.scenario import Scenario, load_scenario
from covey.simulation import simulate
from covey.simulation.run import user_data

SCENARIO = load_scenario("quick")


@pytest.fixture(scope="module")
def data() -> UserData:
    return user_data(SCENARIO, 0)


@pytest.fixture(scope="module")
def accuracy(data: UserData) -> np.ndarray[Any, np.dtype[np.float64]]:
    return Central(SCENARIO, 0)(data)


def job_of(data: UserData, group: int = 0) -> central.CentralJob:
    module = Central(SCENARIO, 0)._built(data)
    return central._job(data, group, np.flatnonzero(data.groups == group), copy.deepcopy(module), "softmax", 0)


def test_it_beats_the_federated_run_and_guessing_on_digits(accuracy: Any) -> None:
    last = simulate(SCENARIO, rounds=15).records[-1]
    assert last.users.accuracy.mean() < accuracy.mean()
    assert accuracy.mean() > 0.9 > last.users.majority.mean()
    # Without noise and with true groups, many rounds of the federated run come near it, as they should.
    free = load_scenario("quick", ["privacy.noise='off'", "clustering.rule='oracle'", "training.learning_rate=1.0"])
    assert simulate(free, rounds=30).records[-1].accuracy < accuracy.mean() + 0.02


def test_it_is_a_plain_loop_of_sgd_with_momentum(data: UserData) -> None:
    job = job_of(data)
    found = central.train_centrally(job)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    load_flat(model, initial_weights(copy.deepcopy(model), 1, 0)[0])
    velocity = [torch.zeros_like(weights) for weights in model.parameters()]
    x, y = torch.from_numpy(job.x), torch.from_numpy(job.y)
    from covey.seeding import generator

    for epoch in range(1, int(found["epochs"]) + 1):
        order = generator(0, "central", user=0, round=epoch).permutation(len(y))
        for start in range(0, len(y), central.BATCH):
            rows = torch.from_numpy(order[start : start + central.BATCH])
            model.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                for weights, moving in zip(model.parameters(), velocity, strict=True):
                    assert weights.grad is not None
                    moving.mul_(central.MOMENTUM).add_(weights.grad)
                    weights -= found["rate"] * moving
    with torch.no_grad():
        right = (model(torch.from_numpy(job.test_x)).argmax(1) == torch.from_numpy(job.test_y)).double().numpy()
    assert found["accuracy"] == pytest.approx([part.mean() for part in np.split(right, job.test_offsets[1:-1])])


def test_test_samples_do_not_choose_how_it_is_trained(data: UserData) -> None:
    job = job_of(data)
    honest = central.train_centrally(job)
    lied = central.train_centrally(replace(job_of(data), test_y=(job.test_y + 1) % 10))
    assert (lied["rate"], lied["epochs"]) == (honest["rate"], honest["epochs"])
    assert np.mean(lied["accuracy"]) < 0.2 < np.mean(honest["accuracy"])


def test_each_user_is_judged_on_the_model_of_its_own_group(data: UserData, accuracy: Any) -> None:
    mixed = replace(data, groups=(data.groups + 1) % 4)
    assert Central(SCENARIO, 0)(mixed).shape == (12,)
    # Groups hold other classes: a user judged on the model of another group is wrong almost always.
    assert accuracy.mean() > 0.9
    job = job_of(data, 0)
    stranger = np.flatnonzero(data.groups == 2)
    rows = central._rows(data.test_offsets, stranger)
    wrong = replace(
        job, test_x=data.test_x[rows], test_y=data.test_y[rows],
        test_offsets=np.concatenate([[0], np.cumsum(np.diff(data.test_offsets)[stranger])]),
    )  # fmt: skip
    assert np.mean(central.train_centrally(wrong)["accuracy"]) < 0.3


def test_the_same_bits_at_any_number_of_threads(data: UserData, accuracy: Any) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert Central(SCENARIO, 0)(data).tolist() == accuracy.tolist()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_kept_groups_are_not_trained_again_unless_something_changed(
    data: UserData, accuracy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Central(SCENARIO, 0, kept=Store(tmp_path / "a.jsonl"))(data).tolist() == accuracy.tolist()
    trained: list[int] = []

    def counted(job: central.CentralJob) -> dict[str, Any]:
        trained.append(job.group)
        return {"accuracy": [0.5] * 3, "rate": 0.05, "epochs": 1, "samples": 1}

    monkeypatch.setattr(central, "train_centrally", counted)

    def again(scenario: Scenario = SCENARIO, seed: int = 0, given: UserData = data, **more: Any) -> list[int]:
        trained.clear()
        Central(scenario, seed, kept=Store(tmp_path / "a.jsonl"), **more)(given)
        return list(trained)

    assert again() == []
    assert again(load_scenario("quick", ["privacy.v_max=6", "training.rounds=3"])) == []  # it has no noise
    assert again(seed=1) == [0, 1, 2, 3]
    changed = data.x.copy()
    changed[0, 0] += 1  # of a user of one group
    assert again(given=replace(data, x=changed)) == [int(data.groups[0])]
    assert again(load_scenario("quick", ["model.name='mlp'"])) == [0, 1, 2, 3]
    assert again(model=nn.Sequential(nn.Flatten(), nn.Linear(64, 10))) == [0, 1, 2, 3]


def test_the_same_data_cost_nothing_in_the_next_round(data: UserData, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Central(SCENARIO, 0)
    first = reference(data)
    monkeypatch.setattr(central, "_job", None)
    assert reference(data).tolist() == first.tolist()


def test_groups_too_small_to_hold_anything_out() -> None:
    rng = np.random.default_rng(0)
    y = np.array([0, 1, 0, 1])
    x = rng.normal(size=(4, 2)).astype(np.float32) + 4 * y[:, None]
    few = UserData.from_users([(x, y)], test=[(x, y)])
    found = Central(load_scenario("quick", ["model.name='softmax'"]), 0)(few)
    assert found.tolist() == [1.0]


def test_what_does_not_converge_is_said_and_not_shown(data: UserData) -> None:
    huge = replace(data, x=data.x * np.float32(1e30))
    with pytest.raises(ScenarioError, match="central model of group 0 did not converge"):
        Central(SCENARIO, 0)(huge)


def test_what_is_cheap_is_decided_by_size_alone(data: UserData) -> None:
    assert Central(SCENARIO, 0).cheap(data)
    assert not Central(load_scenario("quick", ["model.name='mlp'", "model.hidden=[4000, 4000]"]), 0).cheap(data)
