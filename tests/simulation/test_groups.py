"""Runs with more or fewer tasks than groups."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from covey.errors import ScenarioError
from covey.scenario import load_scenario
from covey.simulation import History, Simulation, simulate
from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint, write_results
from covey.simulation.run import user_data

SHARE, SPARE = "network.tasks=2", "network.tasks=8"


def play(*overrides: str, rounds: int = 3, seed: int = 1) -> History:
    return simulate(load_scenario("quick", [*overrides, f"training.rounds={rounds}"]), "greedy", seed=seed)


def placed(history: History, identity: list[int], group: list[int]) -> History:
    """The history with these tasks and groups of the first users in the last round; nobody else is known."""
    last, users = history.records[-1], len(history.samples)
    fill = [-1] * (users - len(identity))
    moved = replace(last.users, identity=np.array(identity + fill), group=np.array(group + fill))
    return replace(history, records=[replace(last, users=moved)])


@pytest.mark.parametrize("key", [SHARE, SPARE])
def test_columns_are_by_task_and_by_group(key: str) -> None:
    history = play(key)
    tasks = history.scenario.network.tasks
    assert history.models.shape[0] == tasks
    assert sorted(set(history.groups.tolist())) == [0, 1, 2, 3]
    for name, width in (("task_users", tasks), ("task_loss", tasks), ("group_loss", 4), ("group_accuracy", 4)):
        assert history.column(name).shape == (3, width), name
    assert np.isfinite(history.column("group_loss")).all()
    assert len(history.start["group_loss"]) == len(history.start["group_accuracy"]) == 4
    summary = history.summary()
    groups = [task["group"] for task in summary["tasks"]]
    assert len(groups) == tasks
    assert len([group for group in groups if group >= 0]) == min(tasks, 4)
    right = [user["identity_right"] for user in summary["users"]]
    assert np.mean(right) == summary["final"]["clustering_accuracy"]
    for task in summary["tasks"]:
        assert np.isfinite(task["group_loss"]) == (task["group"] >= 0)


@pytest.mark.parametrize("rule", ["loss", "kmeans", "printed_sign"])
@pytest.mark.parametrize("key", [SHARE, SPARE])
def test_every_rule_takes_them(rule: str, key: str) -> None:
    history = play(key, f"clustering.rule={rule}", rounds=2)
    assert np.isfinite(history.column("loss")).all()
    assert history.user_column("identity").max() < history.scenario.network.tasks


def test_the_data_do_not_depend_on_the_tasks() -> None:
    first, *others = (user_data(load_scenario("quick", [f"network.tasks={tasks}"]), 3) for tasks in (4, 2, 8))
    for other in others:
        np.testing.assert_array_equal(first.groups, other.groups)
        np.testing.assert_array_equal(first.x, other.x)


def test_the_same_number_given_explicitly_is_the_same_run() -> None:
    implied, given = play(), play("data.groups=4")
    np.testing.assert_array_equal(implied.models, given.models)
    for one, other in zip(implied.records, given.records, strict=True):
        np.testing.assert_equal(one.scalars(), other.scalars())


def test_true_groups_need_a_task_each_and_leave_the_rest_free() -> None:
    with pytest.raises(ScenarioError, match=r"4 groups and 2 tasks; raise network\.tasks to 4"):
        play(SHARE, "clustering.rule=oracle")
    history = play(SPARE, "clustering.rule=oracle")
    np.testing.assert_array_equal(history.records[-1].users.identity, history.groups)
    assert history.unused_tasks() == [4, 5, 6, 7]
    assert history.shared_models() == {}
    assert [task["group"] for task in history.summary()["tasks"]] == [0, 1, 2, 3, -1, -1, -1, -1]
    start = Simulation(history.scenario, seed=1)
    np.testing.assert_array_equal(history.models[4:], start.state.models[4:])
    start.close()


def test_groups_that_share_a_model_and_tasks_without_users() -> None:
    history = play(rounds=1)
    # Group 0 is on task 3; group 1 too, but for one of three; group 2 is split in halves; group 3 is on task 1.
    identity, group = [3, 3, 3, 3, 1, 0, 1, 1, 1], [0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert placed(history, identity, group).shared_models() == {3: [0, 1]}
    assert placed(history, [2] * 4, [0, 1, 2, 3]).shared_models() == {2: [0, 1, 2, 3]}
    assert placed(history, [], []).shared_models() == {}
    assert placed(history, [0, -1, 0], [0, 1, -1]).shared_models() == {}
    assert replace(history, records=[]).shared_models() == {}
    assert replace(history, records=[]).unused_tasks() == []
    assert placed(history, [0], [0]).unused_tasks() == [], "others may have the rest"
    unknown = placed(history, [0], [-1]).summary()["groups"]
    assert unknown == {"groups": None, "tasks": 4, "tasks_used": None, "unused_tasks": [], "shared_models": {}}


def test_the_summary_says_who_shares() -> None:
    history = play(SHARE, rounds=6)
    found = json.loads(json.dumps(history.summary()["groups"]))
    assert found["groups"] == 4
    assert found["tasks"] == 2
    assert found["tasks_used"] == 2 - len(history.unused_tasks())
    assert found["shared_models"] == {str(task): groups for task, groups in history.shared_models().items()}
    assert sum(len(groups) for groups in found["shared_models"].values()) >= 3, "four groups on two models"


@pytest.mark.parametrize("key", [SHARE, SPARE])
def test_a_resumed_run_ends_like_an_uninterrupted_one(key: str, tmp_path) -> None:
    whole = play(key, rounds=4)
    with Simulation(whole.scenario, "greedy", seed=1) as first:
        first.play()
        first.play()
        save_checkpoint(first, tmp_path)
    with Simulation(whole.scenario, "greedy", seed=1) as second:
        restore_checkpoint(second, tmp_path)
        while not second.done:
            second.play()
    np.testing.assert_array_equal(second.history.models, whole.models)
    for name, history in (("a", second.history), ("b", whole)):
        (tmp_path / name).mkdir()
        write_results(history, tmp_path / name, {})
    assert (tmp_path / "a" / "summary.json").read_bytes() == (tmp_path / "b" / "summary.json").read_bytes()


def test_own_data_may_have_more_groups_than_tasks() -> None:
    data = user_data(load_scenario("quick"), 0)
    two = load_scenario("quick", [SHARE, "data.mixes=default"])
    with pytest.raises(ScenarioError, match=r"numbered up to 3, but the scenario 2; set data\.groups = 4"):
        simulate(two, seed=0, data=data)
    four = load_scenario("quick", [SHARE, "data.mixes=default", "data.groups=4", "training.rounds=1"])
    assert len(simulate(four, seed=0, data=data).records[0].group_loss) == 4
