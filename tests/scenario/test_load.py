from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.environment.calibration import learning_hash
from covey.errors import ScenarioError
from covey.scenario import PRESETS, Scenario, dump_scenario, load_scenario
from covey.scenario.load import fingerprint


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_load_and_survive_a_round_trip(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert Scenario.model_validate(tomllib.loads(dump_scenario(scenario))) == scenario


def test_the_presets_are_there() -> None:
    assert set(PRESETS) == {"quick", "campus", "femnist", "cifar10", "paper", "paper_digits", "paper_femnist"}


def test_paper_preset_is_table_two() -> None:
    paper = load_scenario("paper")
    network, radio = paper.network, paper.radio
    assert (network.stations, network.users, network.tasks, network.blocks) == (4, 12, 4, 4)
    assert all(len(tasks) == 3 for tasks in network.station_tasks)
    assert (radio.user_power_dbm, radio.noise_dbm_per_block, radio.min_rate_bps) == (30, -90, 1e6)
    assert (paper.privacy.v_max, paper.privacy.n_min, paper.reward.leakage_weight) == (12, 100, 2e7)
    assert paper.training.learning_rate == 0.03
    assert radio.model_bits == 552_714 * 32
    assert int(radio.downlink_limit_s * radio.downlink_rate_bps / radio.model_bits) == 6


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("network.userss=3", ["userss", "did you mean 'users'"]),
        ("nonsense=3", ["unknown key 'nonsense'", "network"]),
        ("network.tasks=20", ["more tasks (20) than users (12)"]),
        ("privacy.v_max=-1", ["privacy.v_max", "-1", "greater than 0"]),
        ("privacy.n_min=1e9", ["infeasible", "lower privacy.n_min to at most"]),
        ("network.task_sets=[[0],[1],[2],[2]]", ["no station can run task 3"]),
        ("network.task_sets=[[0,1,2,3],[9],[2],[2]]", ["names task 9", "0 to 3"]),
        ("network.task_sets=[[0,1,2,3]]", ["1 lists for 4 stations"]),
        ("network.users=1.5", ["network.users", "integer"]),
        ("network.users=", ["'network.users' is ''", "integer"]),
        ("security.mode=", ["'none', 'masked' or 'blind'"]),
        ('security.mode="default"', ["'none', 'masked' or 'blind'"]),
        ("radio.min_rate_bps=nan", ["radio.min_rate_bps", "finite"]),
        ("data.samples_max=3", ["samples_max (3) is below samples_min"]),
        ("data.groups=3", ["mixes has 4 entries", "3 groups", "data.mixes=default"]),
        ("data.name=folder", ["needs a path"]),
        ("clustering.rule=foo", ["gradient_loss"]),
        ("network.station_positions_m=[[900,1],[1,1],[1,2],[1,3]]", ["outside the area"]),
        ("users", ["key=value"]),
        ("name.x=3", ["is a value, not a section"]),
    ],
)
def test_bad_overrides_get_one_sentence(override: str, words: list[str]) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario("quick", [override])
    message = str(error.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert error.value.exit_code == 2


def test_missing_file_and_broken_toml(tmp_path) -> None:
    with pytest.raises(ScenarioError, match="did you mean 'quick'"):
        load_scenario("quik")
    broken = tmp_path / "broken.toml"
    broken.write_text("[network\nusers = 3")
    with pytest.raises(ScenarioError, match="not valid TOML"):
        load_scenario(broken)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="cannot be read as text"):
        load_scenario(binary)


def test_overrides_are_typed_and_nested() -> None:
    scenario = load_scenario("quick", ["network.users=20", "data.name=cifar10", "network.area_m=[100, 50]"])
    assert (scenario.network.users, scenario.data.name, scenario.network.area_m) == (20, "cifar10", (100, 50))


def test_fingerprint_tells_scenarios_apart() -> None:
    assert fingerprint(load_scenario("quick")) == fingerprint(load_scenario("quick"))
    assert fingerprint(load_scenario("quick")) != fingerprint(load_scenario("quick", ["network.users=13"]))


@given(stations=st.integers(1, 9), tasks=st.integers(1, 9), width=st.integers(1, 9))
def test_default_task_sets_have_the_asked_width_or_are_refused(stations: int, tasks: int, width: int) -> None:
    table = {"network": {"stations": stations, "users": 9, "tasks": tasks, "tasks_per_station": width}}
    side_by_side = [sorted((b + j) % tasks for j in range(min(width, tasks))) for b in range(stations)]
    if stations * width >= tasks:
        sets = Scenario.model_validate(table).network.station_tasks
        assert all(len(s) == min(width, tasks) for s in sets)
        if {k for tasks in side_by_side for k in tasks} == set(range(tasks)):
            assert [list(s) for s in sets] == side_by_side
    else:
        with pytest.raises(ValueError, match="no station can run task"):
            Scenario.model_validate(table)


@pytest.mark.parametrize(
    "override",
    [
        "training.batch=true", "training.steps=true", "training.proximal=true", "training.momentum=false",
        "network.users=true", "network.area_m=[true, 500]", "model.hidden=[true]", "privacy.budget_epsilon=true",
        "privacy.target_epsilon=true", "clustering.announce_rounds=true", "data.mixes=[{0 = true}]",
    ],
)  # fmt: skip
def test_truth_values_are_no_numbers(override: str) -> None:
    key = re.escape(override.partition("=")[0])
    with pytest.raises(ScenarioError, match=rf"in \[{key}\], it should be a number, not true or false$"):
        load_scenario("quick", [override])


def test_tasks_that_are_a_truth_value_are_refused_beside_growth_too() -> None:
    with pytest.raises(ScenarioError, match=r"in \[network.tasks\], it should be a number"):
        load_scenario("quick", ["network.tasks=true", "clustering.max_tasks=4"])


def test_whole_numbers_and_exponents_are_numbers() -> None:
    training = load_scenario("quick", ["training.proximal=1", "training.batch=1e2"]).training
    assert (training.proximal, training.batch) == (1.0, 100)
    assert load_scenario("quick", ["clustering.rescue=1"]).clustering.rescue is True


def test_a_name_has_characters() -> None:
    with pytest.raises(ScenarioError, match="'name' is '', but it should have at least one character"):
        load_scenario("quick", ["name="])


@pytest.mark.parametrize("spelling", ["false", "0", "no", "off"])
def test_all_spellings_of_no_rescue_end_turns(spelling: str) -> None:
    def loaded(word: str, *more: str) -> Scenario:
        return load_scenario("quick", [f"clustering.rescue={word}", *more])

    assert loaded(spelling).clustering.turns is False
    assert learning_hash(loaded(spelling)) == learning_hash(loaded("false"))
    assert loaded(spelling, "clustering.start=release").clustering.turns is True


@pytest.mark.parametrize("mode", ["masked", "blind"])
def test_sums_that_can_never_be_opened_are_refused(mode: str) -> None:
    def loaded(*overrides: str) -> Scenario:
        return load_scenario("quick", [f"security.mode={mode}", *overrides])

    with pytest.raises(ScenarioError, match=r"security.minimum is 13, but there are only 12 users, so that no sum"):
        loaded("security.minimum=13")
    with pytest.raises(ScenarioError, match="stations with 1 blocks each serve at most 3 users in a round"):
        loaded("network.stations=3", "network.blocks=1", "security.minimum=4")
    assert loaded("network.stations=3", "network.blocks=1", "security.minimum=3").security.minimum == 3
    assert load_scenario("quick", ["security.minimum=13"]).security.mode == "none"


@pytest.mark.parametrize("budget", ["3", str([3.0] * 12)])
def test_a_budget_without_noise_is_refused(budget: str) -> None:
    with pytest.raises(ScenarioError, match="noise is 'off', so that no upload has a finite epsilon"):
        load_scenario("quick", ["privacy.noise=off", f"privacy.budget_epsilon={budget}"])
