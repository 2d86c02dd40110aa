"""Parts of the world around the models from outside the package: data, model, mobility, path loss, channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples.parts.row_and_column_sums import sums
from examples.parts.walls import WALL_DB, WALL_X_M

import covey
from covey.data import load_dataset, partition
from covey.errors import DataError


def play(*overrides: str, rounds: int = 3, **given: Any) -> covey.History:
    return covey.simulate(covey.load_scenario("quick", list(overrides)), rounds=rounds, seed=1, **given)


def test_rings_are_dealt_and_learned() -> None:
    model = ("model.name=mlp", "training.learning_rate=1.0", "privacy.noise=off", "clustering.rule=oracle")
    history = play(
        "data.name=examples.parts.two_rings:load", "data.mixes=default", "network.tasks=2", *model, rounds=10
    )
    assert history.models.shape[1] == 2 * 32 + 32 + 32 * 2 + 2
    assert history.column("loss")[-1] < history.column("loss")[0]


def test_sums_of_rows_and_columns_are_what_models_see() -> None:
    history = play("data.transform=examples.parts.row_and_column_sums:sums", "privacy.noise=off", rounds=8)
    assert history.models.shape[1] == (8 + 8 + 1) * 10
    assert history.column("accuracy")[-1] > history.column("majority")[-1]
    image = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    expected = np.array([6, 22, 38, 12, 15, 18, 21]) / np.sqrt(3)
    np.testing.assert_allclose(sums(image, covey.load_scenario("quick").data), [expected], rtol=1e-6)


@pytest.mark.parametrize("tasks", [1, 3, 4])
def test_groups_of_the_class_split_share_no_class(tasks: int) -> None:
    overrides = [f"network.tasks={tasks}", f"network.tasks_per_station={tasks}", "data.mixes=default"]
    scenario = covey.load_scenario("quick", ["data.partition=examples.parts.class_split:deal", *overrides])
    data = partition(load_dataset(scenario.data, groups=tasks), scenario, 1)
    for labels, offsets in ((data.y, data.offsets), (data.test_y, data.test_offsets)):
        assert (labels % tasks == np.repeat(data.groups, np.diff(offsets))).all()
    assert set(data.y.tolist()) == set(range(10))


def test_the_class_split_refuses_more_groups_than_classes_and_is_learned() -> None:
    split, rings = "data.partition=examples.parts.class_split:deal", "data.name=examples.parts.two_rings:load"
    with pytest.raises(DataError, match=r"2 classes of 'two_rings' cannot be split among 4 groups; set network.tasks"):
        play(split, rings, "data.mixes=default")
    history = play(split, "clustering.rule=oracle", "privacy.noise=off")
    assert history.column("loss")[-1] < history.column("loss")[0]


def test_the_wide_model_trains_in_worker_processes_too() -> None:
    alone, pair = (play("model.name=examples.parts.wide_model:build", workers=workers) for workers in (1, 2))
    assert alone.models.shape[1] == 64 * 128 + 128 + 128 * 10 + 10
    assert alone.models.tobytes() == pair.models.tobytes()


def test_the_shuttle_turns_at_the_border_and_leaves_y_alone() -> None:
    history = play("mobility.model=examples.parts.shuttle:Shuttle", "mobility.speed_m_s=20", rounds=6)
    x, y = history.user_column("x_m"), history.user_column("y_m")
    assert (y == y[0]).all()
    steps = np.diff(x, axis=0)
    assert (steps > 0).any()
    assert (steps < 0).any()
    assert x.min() >= 0.0
    assert x.max() <= 500.0


def test_free_space_reaches_farther_and_walls_less() -> None:
    open_, usual, walled = (
        covey.Simulation(covey.load_scenario("quick", overrides), seed=1)
        for overrides in (
            ["radio.path_loss=examples.parts.walls:free_space"],
            [],
            ["radio.channel=examples.parts.walls:Walled"],
        )
    )
    with open_, usual, walled:
        gains = [
            one.world.channel.gains(one.state.positions_m, one.world.stations_m, 0) for one in (open_, usual, walled)
        ]
        places, sites = usual.state.positions_m, usual.world.stations_m
        users, stations = places[:, 0], sites[:, 0]
    # Near a station, where there is no difference to be seen, the models cross.
    far = np.hypot(*(places[:, None] - sites).transpose(2, 0, 1)) > 50.0
    assert (gains[0] > gains[1])[far].all()
    apart = (users[:, None] < WALL_X_M) != (stations < WALL_X_M)
    np.testing.assert_allclose(gains[2], np.where(apart, 10.0 ** (-WALL_DB / 10.0), 1.0) * gains[1])
