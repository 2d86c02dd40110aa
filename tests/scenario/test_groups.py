from __future__ import annotations

import pytest

from covey.errors import ScenarioError
from covey.scenario import dump_scenario, load_scenario
from covey.scenario.load import scenario_from_dict


@pytest.mark.parametrize(
    ("overrides", "groups"),
    [
        ([], 4),
        (["network.tasks=2"], 4),
        (["network.tasks=8"], 4),
        (["data.mixes=default"], 4),
        (["data.mixes=default", "network.tasks=2"], 2),
        (["data.mixes=default", "data.groups=6"], 6),
        (["data.mixes=default", "data.group_sizes=[7,3,2]"], 3),
        (["data.mixes=default", "data.rotations=[0,15,90,105,180]", "data.partition=rotation"], 5),
        (["data.group_sizes=[7,3,1,1]", "data.groups=4"], 4),
    ],
)
def test_the_number_of_groups(overrides: list[str], groups: int, tmp_path) -> None:
    scenario = load_scenario("quick", overrides)
    assert scenario.groups == groups
    assert scenario.network.tasks == int(next((o[14:] for o in overrides if o.startswith("network.tasks=")), 4))
    (tmp_path / "again.toml").write_text(dump_scenario(scenario))
    assert load_scenario(tmp_path / "again.toml") == scenario


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data.groups=0"], "greater than or equal to 1"),
        (["data.groups=5"], "mixes has 4 entries, but there are 5 groups"),
        (["data.mixes=default", "data.groups=13"], r"more groups \(13\) than users \(12\)"),
        (["network.users=3", "network.tasks=2"], r"more groups \(4\) than users \(3\)"),
        (["data.group_sizes=[7,3,1]"], r"different lengths \(mixes 4 and group_sizes 3 entries\).*data.mixes=default"),
        (["data.group_sizes=[7,3,1,2]"], "adds up to 13 users, but network.users is 12"),
        (["data.group_sizes=[9,3,0,0]"], "greater than or equal to 1"),
        (["data.mixes=default", "data.groups=3", "data.rotations=[0,45]"], "rotations has 2 entries.* 3 groups"),
        (["data.mixes=default", "data.rotations=[0,inf]"], "finite"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(overrides: list[str], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        load_scenario("quick", overrides)
    assert "\n" not in str(caught.value)


def test_eight_tasks_reach_the_four_stations_of_quick() -> None:
    sets = load_scenario("quick", ["network.tasks=8"]).network.station_tasks
    assert sets == ((0, 1, 2), (2, 3, 4), (4, 5, 6), (0, 6, 7))
    with pytest.raises(ScenarioError, match="no station can run task"):
        scenario_from_dict({"network": {"stations": 2, "tasks": 7, "tasks_per_station": 3}})
