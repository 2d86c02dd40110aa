"""The published setting on rotated MNIST: what is dealt, that rounds are plain averaged steps, what was measured."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.nn import functional

from covey.data import Dataset
from covey.errors import ScenarioError
from covey.federated import build_model, initial_weights
from covey.federated.models import flatten, load_flat
from covey.scenario import Scenario, load_scenario
from covey.simulation import Simulation

ROOT = Path(__file__).parents[1]


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "experiments")
    return import_module("rotated_mnist")


def scenario_with(study: ModuleType, *overrides: str) -> Scenario:
    return load_scenario(str(study.SCENARIO), overrides)


def digits(count: int = 1290) -> Dataset:
    """Pictures that are bright in the row of their class and, at the left, spell their number."""
    rows = np.arange(count)
    x = np.zeros((count, 1, 28, 28), np.uint8)
    x[rows, 0, rows % 10 + 9, 4:24] = 200
    x[rows, 0, 0, 13], x[rows, 0, 0, 14] = rows // 256, rows % 256
    return Dataset("mnist", x, rows % 10, rows >= count - 10, tuple("0123456789"))


def test_users_hold_the_images_in_order_turned_by_the_angle_of_their_part(study: ModuleType) -> None:
    scenario, dataset = scenario_with(study), digits()
    data = study.deal(dataset, scenario, seed=3)
    assert data.users == 128
    assert np.bincount(data.groups).tolist() == [16] * 8
    sizes = np.diff(data.offsets) + np.diff(data.test_offsets)
    assert sizes.tolist() == [11] * 10 + [10] * 118
    assert np.diff(data.offsets).tolist() == [7] * 128
    # User 0 is not turned, user 40 by 90 degrees: turned back, images say which they were.
    for user, quarters in ((0, 0), (40, 1), (70, 2), (100, 3)):
        first = int(sizes[:user].sum())
        rows = slice(data.offsets[user], data.offsets[user + 1])
        held_out = slice(data.test_offsets[user], data.test_offsets[user + 1])
        x = np.rot90(np.concatenate([data.x[rows], data.test_x[held_out]]), -quarters, axes=(2, 3))
        numbers = np.rint(x[:, 0, 0, 13:15] * 255) @ [256, 1]
        assert sorted(numbers) == list(range(first, first + sizes[user]))
        assert np.concatenate([data.y[rows], data.test_y[held_out]]).tolist() == (numbers % 10).tolist()
    assert data.x.max() == 1.0
    other = study.deal(dataset, scenario, seed=4)
    assert not np.array_equal(other.y, data.y), "another seed splits otherwise"


def test_images_at_the_border_of_two_parts_are_turned_by_number_not_by_user(study: ModuleType) -> None:
    # 1,290 // 8 = 161 images a part: the last images of user 15, from 161 on, are of the second part.
    data = study.deal(digits(), scenario_with(study), seed=0)
    train = data.x[data.offsets[15] : data.offsets[16]]
    test = data.test_x[data.test_offsets[15] : data.test_offsets[16]]
    # An image that was not turned is bright in one row only.
    tilted = [image[0, 9:19].any(axis=1).sum() > 1 for image in np.concatenate([train, test])]
    assert sum(tilted) == 10 * 11 + 6 * 10 - 161


def test_a_run_is_plain_averaged_steps_of_everybody(study: ModuleType) -> None:
    """One model: with whole batches a round is one step on the mean gradient of all users."""
    scenario = scenario_with(
        study, "network.tasks=1", "network.tasks_per_station=1", "training.rounds=3", "training.batch=0"
    )
    data = study.deal(digits(), scenario, seed=1)
    module = build_model(scenario.model, data.shape, 10)
    load_flat(module, initial_weights(module, 1, 1)[0])
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    for _ in range(3):
        gradients = torch.autograd.grad(functional.cross_entropy(module(x), y), list(module.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(module.parameters(), gradients, strict=True):
                weight -= 0.1 * gradient
    with Simulation(scenario, "greedy", seed=1, data=data) as simulation:
        while not simulation.done:
            record = simulation.play()
    assert record.served == 128
    assert record.clipped_fraction == 0
    np.testing.assert_allclose(simulation.state.models[0], flatten(module), atol=2e-6)


def test_a_run_tells_accuracy_and_groups_by_round(study: ModuleType) -> None:
    scenario = scenario_with(study, "training.rounds=2", "training.batch=0")
    values = study.play(scenario, study.deal(digits(), scenario, seed=0), 0)
    assert len(values["accuracy"]) == 3
    assert len(values["adjusted_rand_index"]) == len(values["models_used"]) == 2
    assert abs(values["adjusted_rand_index"][0]) < 0.1, "first tasks are drawn"
    assert values["models_used"][0] == 4


def test_a_run_that_leaves_users_out_is_refused(study: ModuleType) -> None:
    scenario = scenario_with(study, "network.blocks=100", "training.rounds=1")
    with pytest.raises(ScenarioError, match="28 users were not served"):
        study.play(scenario, study.deal(digits(), scenario, seed=0), 0)


def test_the_study_finds_its_committed_cells(study: ModuleType) -> None:
    store = import_module("covey.figures.cells").cells_in(ROOT / "results/rotated_mnist", any_version=True)
    for rule in (study.GLOBAL, *study.RULES):
        for seed in range(5):
            assert store.has(study.rotated_run(rule, seed)), f"{rule} seed {seed}"


def test_what_was_measured_is_where_it_has_to_be(study: ModuleType) -> None:
    page = import_module("rotated_mnist_page")
    found = page.read_runs(ROOT / "results/rotated_mnist")
    for rule in page.REFERENCES:
        assert len(found[rule].seeds) == 5
        assert page.in_range(rule, found[rule]), rule


def test_one_more_run_is_within_its_interval_as_often_as_it_says(study: ModuleType) -> None:
    single_run = import_module("rotated_mnist_page").single_run
    drawn = np.random.default_rng(0).normal(0.6, 0.03, (4000, 6))
    inside = [low <= row[5] <= high for row in drawn for low, high in [single_run(row[:5])]]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)
