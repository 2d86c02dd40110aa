"""Reading and writing scenarios: presets, TOML files and `key=value` overrides."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from covey.errors import ScenarioError
from covey.scenario.first_values import with_first_values
from covey.scenario.schema import Scenario

#: Presets that come with covey: name to TOML file.
PRESETS: dict[str, Path] = {path.stem: path for path in sorted((Path(__file__).parent / "presets").glob("*.toml"))}
#: The override value, without quotes, that resets a key to its default.
DEFAULT = "default"
#: Where the scenarios of this process were loaded from, by their identity.
_SOURCES: dict[int, str] = {}
#: Characters of a refused value that an error message repeats.
LONGEST = 60
#: What a value should have been, for types that are called otherwise in TOML than in Python.
_KINDS = {
    "tuple_type": "a list",
    "dict_type": "a table",
    "string_type": "a text",
    "int_parsing_size": "a smaller number",
}


def load_scenario(source: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario of a preset name or TOML file, with overrides applied.

    `overrides` are `section.key=value` strings whose values are read as TOML
    (`network.users=20`, `data.name=cifar10`, `network.task_sets=[[0,1],[1,2]]`). The bare
    word `default` resets a key to its default; in quotes it is an ordinary string.
    Raises `ScenarioError` with one sentence when anything is not allowed.
    """
    scenario = scenario_from_dict(scenario_table(source, overrides), where=f"scenario '{source}'")
    _check_turns(scenario, overrides)
    number = id(scenario)
    _SOURCES[number] = str(source)
    weakref.finalize(scenario, _SOURCES.pop, number, None)
    return scenario


def source_of(scenario: Scenario) -> str:
    """The preset or file that this scenario was loaded from; a placeholder where it was made otherwise."""
    return _SOURCES.get(id(scenario), scenario.name if scenario.name in PRESETS else "SCENARIO.toml")


def load_stored_scenario(path: str | Path) -> Scenario:
    """The scenario that covey has written to a file; options that are younger than the file mean their first value."""
    return scenario_from_dict(with_first_values(scenario_table(path)), where=f"scenario '{path}'")


def scenario_table(source: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The nested dictionary behind `load_scenario`, before it is validated."""
    path = PRESETS.get(str(source), Path(source))
    table = _read_toml(path, str(source))
    _give_way(table, overrides)
    for override in overrides:
        _apply(table, override)
    return table


def scenario_from_dict(table: dict[str, Any], where: str = "the scenario") -> Scenario:
    """The validated scenario of a nested dictionary; `where` names its origin in errors."""
    try:
        return Scenario.model_validate(table)
    except ValidationError as error:
        problems = _problems(error)
        more = f" (and {others} more problem{'s' if others > 1 else ''})" if (others := len(problems) - 1) else ""
        raise ScenarioError(f"{where}: {_sentence(problems[0])}{more}") from None


def scenario_problems(table: dict[str, Any]) -> list[tuple[str, str]]:
    """Every problem of a nested dictionary: its key (empty for the whole scenario) and one sentence."""
    try:
        Scenario.model_validate(table)
    except ValidationError as error:
        return [(".".join(_location(problem)), _sentence(problem)) for problem in _problems(error)]
    return []


def dump_scenario(scenario: Scenario) -> str:
    """The scenario as TOML text; reading it back gives an equal scenario."""
    header = "# A covey scenario; every key is explained in docs/scenario.md.\n"
    values = scenario.model_dump(mode="json")
    if scenario.privacy.target_epsilon is not None:
        del values["privacy"]["v_max"]  # it follows from the target
    return header + tomli_w.dumps(_without_none(values))


def fingerprint(scenario: Scenario) -> str:
    """A short hash of all values of the scenario, to recognise equal scenarios."""
    values = scenario.model_dump(mode="json")
    if scenario.privacy.target_epsilon is not None:
        del values["privacy"]["v_max"]  # it follows from the target
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_toml(path: Path, source: str) -> dict[str, Any]:
    presets = ", ".join(PRESETS)
    if not path.is_file():
        close = difflib.get_close_matches(source, PRESETS, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise ScenarioError(
            f"there is no scenario '{source}': it is neither a file nor one of the presets {presets}{hint}"
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"'{source}' cannot be read as text: {error}") from None
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and endless brackets
        raise ScenarioError(f"'{source}' is not valid TOML: {error}; compare it with a preset") from None


def _give_way(table: dict[str, Any], overrides: Sequence[str]) -> None:
    """Of the noise cap and the target that determines it, the one of the file gives way to an override of the other."""
    set_now = {override.partition("=")[0].strip() for override in overrides}
    for name, other in (("v_max", "target_epsilon"), ("target_epsilon", "v_max")):
        if f"privacy.{name}" in set_now and isinstance(table.get("privacy"), dict):
            table["privacy"].pop(other, None)


def _apply(table: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ScenarioError(f"'--set {override}' is not of the form key=value, for example --set network.users=20")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text.strip()  # a bare word such as data.name=cifar10
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ScenarioError(f"'--set {override}': '{part}' is a value, not a section, so it has no keys below it")
    if text.strip() == DEFAULT:
        table.pop(parts[-1], None)
    else:
        table[parts[-1]] = value


def _check_turns(scenario: Scenario, overrides: Sequence[str]) -> None:
    """Refuse an override that asks for turns where nobody takes any.

    Files are not refused: a stored scenario says that there are turns, and its other keys may be overridden later.
    """
    table: dict[str, Any] = {}
    for override in overrides:
        _apply(table, override)
    clustering = scenario.clustering
    asked = table.get("clustering", {}).get("turns", False)
    if asked is not False and not clustering.turns and not clustering.rescue:
        raise ScenarioError(
            f"clustering.turns is {asked!r}, but nobody takes turns with clustering.rescue = false and"
            f" clustering.start = '{clustering.start}'; leave clustering.turns out, or set clustering.rescue=true or"
            " clustering.start=release"
        )


def _problems(error: ValidationError) -> list[Mapping[str, Any]]:
    """The problems, of a key that takes a number or a list those of what was meant only."""
    problems: list[Mapping[str, Any]] = list(error.errors())
    either = [p for p in problems if len(_location(p)) < len(p["loc"])]
    for problem in either:
        meant_list = isinstance(problem["input"], (list, tuple))
        if problem["type"] == "tuple_type" or (problem["type"] == "float_type" and meant_list):
            problems.remove(problem)
    return problems


def _location(problem: Mapping[str, Any]) -> list[str]:
    """Where a problem is, without the names that pydantic gives to alternatives of one key."""
    parts = [str(part) for part in problem["loc"]]
    return [part for part in parts if not part.startswith(("constrained-", "tuple["))]


def _sentence(problem: Mapping[str, Any]) -> str:
    location = _location(problem)
    name = ".".join(location)
    if problem["type"] == "extra_forbidden":
        known = _keys_at(location[:-1])
        close = difflib.get_close_matches(location[-1], known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else "allowed here: " + ", ".join(known)
        return f"unknown key '{name}'; {hint}"
    if problem["type"] == "value_error":
        message = problem["msg"].removeprefix("Value error, ")
        return f"in [{name}], {message}" if name and not message.startswith("the noise") else message
    given = repr(problem["input"])
    shown = given if len(given) <= LONGEST else f"{given[:LONGEST]}..."
    if problem["type"] == "model_type":
        key = f"{name}.{_keys_at(location)[0]}"
        return f"'{name}' is {shown}, but it is a section, whose keys are set one by one, for example {key}=..."
    if problem["type"] == "missing":
        return f"'{'.'.join(location[:-1])}' is {shown}, but entry {location[-1]} is missing; give it too"
    return f"'{name}' is {shown}, but {_expected(problem)}"


def _expected(problem: Mapping[str, Any]) -> str:
    """What should have been given, in the words of TOML."""
    kind, bounds = problem["type"], problem.get("ctx", {})
    if kind == "greater_than_equal":
        least = f"{bounds['ge']:g}"
        above = 0 < bounds["ge"] < 1 and float(problem["input"]) <= 0
        return (
            f"it should be {f'greater than 0, and at least {least}' if above else f'greater than or equal to {least}'}"
        )
    if kind == "less_than_equal":
        most = bounds["le"]
        return f"it should be less than or equal to {f'{most:g}' if isinstance(most, float) else most}"
    if kind == "string_too_short":
        return "it should have at least one character"
    if kind == "too_long":
        return f"it should be a list of at most {bounds['max_length']}"
    if kind in _KINDS:
        return f"it should be {_KINDS[kind]}"
    text = problem["msg"].replace("Input should", "it should")
    return f"{text[:1].lower()}{text[1:]}"


def _keys_at(location: Sequence[str]) -> list[str]:
    model: type[BaseModel] = Scenario
    for part in location:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_none(v) for v in value]
    return value
