"""Every number of a scenario has bounds: beyond them it is refused in one sentence, within them it can be played."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.errors import CoveyError, DataError, ScenarioError
from covey.scenario import Scenario, load_scenario
from covey.scenario.load import scenario_from_dict, scenario_table
from covey.simulation import simulate

#: Beyond what any key allows.
EXTREME = (1e300, -1e300, 10**26 - 1, 10**400, math.nan, math.inf, -math.inf)
#: Keys whose largest value asks for more memory, or time, than tests have; smaller values of these play elsewhere.
LARGE = {
    "network.users", "network.stations", "network.tasks", "data.groups", "data.samples_max", "data.test_samples",
    "data.features", "data.classes", "model.hidden", "model.channels", "training.steps", "training.epochs",
}  # fmt: skip


class Key(NamedTuple):
    """One number of a scenario: its name, its bounds, and the value of the key in which the number stands."""

    name: str
    least: float
    most: float
    value: Callable[[Any], Any]


def keys() -> Iterator[Key]:
    schema = Scenario.model_json_schema()
    for section, reference in schema["properties"].items():
        if "$ref" in reference:
            for key, node in schema["$defs"][reference["$ref"].split("/")[-1]]["properties"].items():
                for leaf, value in numbers(node):
                    low = leaf.get("minimum", leaf.get("exclusiveMinimum"))
                    yield Key(f"{section}.{key}", low, leaf.get("maximum", leaf.get("exclusiveMaximum")), value)


def numbers(node: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Callable[[Any], Any]]]:
    """The numbers in the type of a key, each with how a value of that type is made from one."""
    if node.get("type") in ("number", "integer"):
        yield node, lambda number: number
    for either in node.get("anyOf", []):
        yield from numbers(either)
    for entry in {str(entry): entry for entry in node.get("prefixItems", [])}.values():
        yield from ((leaf, lambda number, inner=inner: [inner(number)] * 2) for leaf, inner in numbers(entry))
    if isinstance(node.get("items"), dict):
        yield from ((leaf, lambda number, inner=inner: [inner(number)] * 4) for leaf, inner in numbers(node["items"]))
    if isinstance(node.get("additionalProperties"), dict):
        inside = numbers(node["additionalProperties"])
        yield from ((leaf, lambda number, inner=inner: {"0": inner(number), "1": 1}) for leaf, inner in inside)


KEYS = list(keys())


def scenario_with(values: dict[str, Any]) -> Scenario:
    table = scenario_table("quick")
    for name, value in values.items():
        section, key = name.split(".")
        table.setdefault(section, {})[key] = value
    return scenario_from_dict(table)


def test_every_number_has_bounds() -> None:
    assert len(KEYS) > 55
    assert [key.name for key in KEYS if key.least is None or key.most is None] == []


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_what_is_beyond_the_bounds_is_refused_in_one_sentence(key: Key) -> None:
    beyond = [math.nextafter(key.least, -math.inf), math.nextafter(key.most, math.inf), key.least - 1, key.most * 2]
    for number in (*EXTREME, *beyond):
        with pytest.raises(ScenarioError) as error:
            scenario_with({key.name: key.value(number)})
        message = str(error.value)
        assert key.name in message
        assert "it should be" in message
        assert "\n" not in message
        assert len(message) < 300, message


# An estimate of what noise of 10^12 times the signal hides may be infinite.
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_both_bounds_can_be_played_or_are_refused(key: Key) -> None:
    for number in (key.least, key.most):
        if number == key.most and key.name in LARGE:
            continue
        try:
            scenario = scenario_with({key.name: key.value(number)})
        except ScenarioError:
            continue
        try:
            assert len(simulate(scenario, rounds=1).records) == 1
        except CoveyError as error:
            assert isinstance(error, (ScenarioError, DataError)), error  # noqa: PT017


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([key for key in KEYS if key.name not in LARGE]), st.booleans()), max_size=6))
def test_several_extremes_together_can_be_played_or_are_refused(chosen: list[tuple[Key, bool]]) -> None:
    values = {key.name: key.value(key.most if high else key.least) for key, high in chosen}
    try:
        simulate(scenario_with(values), rounds=1)
    except (ScenarioError, DataError) as error:
        assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["network.stations=1000000", "network.users=1000000"], "1000000000000 pairs"),
        (["network.stations=100000", "network.users=20000", "network.tasks=20000"], "lower network.users"),
        (["network.blocks=100000"], "lower network.blocks to at most 28284"),
        (["clustering.max_tasks=1000000000"], "less than or equal to 1000000"),
        (["radio.min_rate_bps=1e12"], "a block of 1e+06 Hz allows 1e-06 to 1e+08"),
        (["radio.block_bandwidth_hz=1"], "change radio.min_rate_bps or radio.block_bandwidth_hz"),
        (["data.mixes=[]"], "mixes is an empty list; give one entry for each group"),
        (["data.rotations=[]", "data.mixes=default"], "rotations is an empty list"),
        (["data.group_sizes=[]", "data.mixes=default"], "group_sizes is an empty list"),
        (["data.mixes=[{²=1},{1=1},{2=1},{3=1}]"], "it should be a list"),
        (['data.mixes=[{"²"=1},{1=1},{2=1},{3=1}]'], "the class '²'; classes are numbers"),
        (["network=3"], "'network' is 3, but it is a section, whose keys are set one by one, for example"),
        (["network.area_m=[1]"], "entry 1 is missing"),
        (["network.area_m=5"], "'network.area_m' is 5, but it should be a list"),
        (["network.station_positions_m=[[1,2,3]]"], "should be a list of at most 2"),
        (["privacy.budget_epsilon=[1, -1]"], "'privacy.budget_epsilon.1' is -1, but it should be greater than 0"),
        (["privacy.budget_epsilon=x"], "'privacy.budget_epsilon' is 'x', but it should be a valid number"),
        (["privacy.n_min=1e300"], "less than or equal to 1e+12"),
        ([f"network.users={'9' * 5000}"], "it should be a smaller number"),
        ([f"network.users={'[' * 50_000}"], "it should be a valid integer"),
        (["name=3"], "'name' is 3, but it should be a text"),
    ],
)
def test_messages_are_in_the_words_of_a_scenario_file(overrides: list[str], words: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario("quick", overrides)
    message = str(error.value)
    assert words in message
    assert len(message) < 400
    assert not any(word in message for word in ("tuple", "dictionary", "instance", "constrained"))


def test_a_file_with_endless_brackets_or_digits_is_refused(tmp_path) -> None:
    for text in ("[" * 10_000, f"[network]\nusers = {'[' * sys.getrecursionlimit() * 10}", f"name = {'9' * 5000}"):
        (tmp_path / "scenario.toml").write_text(text)
        with pytest.raises(ScenarioError, match="not valid TOML"):
            load_scenario(tmp_path / "scenario.toml")


@pytest.mark.parametrize(("stations", "tasks", "width"), [(3, 100, 1), (7, 50, 5), (1000, 100_000, 3), (2, 5, 2)])
def test_the_task_that_no_station_runs_is_named(stations: int, tasks: int, width: int) -> None:
    network = {"stations": stations, "tasks": tasks, "tasks_per_station": width, "users": tasks}
    starts = [b * tasks // stations for b in range(stations)]
    first = min(set(range(tasks)) - {start + j for start in starts for j in range(width)})
    with pytest.raises(ScenarioError, match=rf"no station can run task {first};"):
        scenario_from_dict({"network": network})
