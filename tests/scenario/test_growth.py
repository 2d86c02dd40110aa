"""Room for models that are added later: `clustering.max_tasks` and `clustering.first_tasks`."""

from __future__ import annotations

import pytest

from covey.errors import ScenarioError
from covey.scenario import Scenario, dump_scenario, load_scenario
from covey.scenario.load import scenario_from_dict


def again(scenario: Scenario, tmp_path) -> Scenario:
    (tmp_path / "again.toml").write_text(dump_scenario(scenario), encoding="utf-8")
    return load_scenario(tmp_path / "again.toml")


@pytest.mark.parametrize(
    ("overrides", "tasks", "first", "groups"),
    [
        ([], 4, 4, 4),
        (["clustering.max_tasks=8"], 8, 4, 4),
        (["clustering.max_tasks=4"], 4, 4, 4),
        (["network.tasks=2", "clustering.max_tasks=8"], 8, 2, 4),
        (["network.tasks=2", "clustering.max_tasks=8", "data.mixes=default"], 8, 2, 2),
        (["network.tasks=2", "clustering.max_tasks=8", "data.mixes=default", "data.groups=5"], 8, 2, 5),
        (["network.tasks=2", "clustering.max_tasks=8", "clustering.first_tasks=3"], 8, 3, 4),
        (["network.tasks=6", "clustering.first_tasks=2"], 6, 2, 4),
    ],
)
def test_room_is_made_once_and_stays_through_files(
    overrides: list[str], tasks: int, first: int, groups: int, tmp_path
) -> None:
    scenario = load_scenario("quick", overrides)
    for _ in range(3):
        assert (scenario.network.tasks, scenario.first_tasks, scenario.groups) == (tasks, first, groups)
        before, scenario = scenario, again(scenario, tmp_path)
        assert scenario == before
        assert dump_scenario(scenario) == dump_scenario(before)


def test_stations_run_the_added_tasks(tmp_path) -> None:
    for overrides in (
        ["clustering.max_tasks=8"],
        ["network.task_sets=[[0,1],[1,2],[2,3],[0,3]]", "clustering.max_tasks=6"],
    ):
        scenario = load_scenario("quick", overrides)
        run = {task for tasks in scenario.network.station_tasks for task in tasks}
        assert run == set(range(scenario.network.tasks))
        assert again(scenario, tmp_path) == scenario
    assert scenario.network.station_tasks == ((0, 1, 4, 5), (1, 2, 4, 5), (2, 3, 4, 5), (0, 3, 4, 5))


def test_a_file_that_says_less_than_all_sections_grows_too() -> None:
    scenario = scenario_from_dict({"clustering": {"max_tasks": 7}})
    assert (scenario.network.tasks, scenario.first_tasks, scenario.groups) == (7, 4, 4)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["clustering.max_tasks=0"], "greater than or equal to 1"),
        (["clustering.max_tasks=-3"], "greater than or equal to 1"),
        (["clustering.max_tasks=many"], "valid integer"),
        (["clustering.max_tasks=3"], r"max_tasks is 3, but network\.tasks is 4 already; raise it"),
        (["clustering.max_tasks=13"], r"more tasks \(13\) than users \(12\)"),
        (["clustering.first_tasks=0"], "greater than or equal to 1"),
        (["clustering.first_tasks=5"], r"clustering\.first_tasks is 5, but there are 4 tasks; lower it, or raise"),
        (["clustering.max_tasks=6", "clustering.first_tasks=7"], "first_tasks is 7, but there are 6 tasks"),
        (["clustering.start=relese"], r"start of the models 'relese' is unknown.*did you mean 'release'"),
        (["clustering.rescue=perhaps"], "valid boolean"),
    ],
)
def test_wrong_values_are_refused_in_one_sentence(overrides: list[str], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        load_scenario("quick", overrides)
    assert "\n" not in str(caught.value)
