"""Forms for new runs and trainings: options and validation."""

from __future__ import annotations

import os
import shlex
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from covey.agents.library import is_learned
from covey.agents.settings import LearnerSettings, learner_settings
from covey.agents.training_files import POLICY
from covey.association import quick_policies
from covey.dashboard.runs_folder import Folder
from covey.dashboard.scenario_keys import NAME, NETWORK, OVERRIDES, TEXT
from covey.environment.calibration import calibration_for
from covey.environment.known_tasks import check_tasks_are_known
from covey.errors import CoveyError, ScenarioError
from covey.parts import ALGORITHMS, POLICIES, REGISTRIES, is_reference
from covey.scenario import PRESETS, Scenario, load_scenario
from covey.scenario.load import scenario_from_dict, scenario_problems, scenario_table

Text = Annotated[str, Field(max_length=TEXT)]
Name = Annotated[str, Field(min_length=1, max_length=NAME)]


class Base(BaseModel):
    """The source of a scenario: a preset or an entry, and overrides."""

    model_config = ConfigDict(extra="forbid")

    preset: Annotated[str, Field(max_length=64)] = Field("quick", description="Name of a preset.")
    entry: Name | None = Field(None, description="Use the scenario of this run or training instead of a preset.")
    overrides: Annotated[list[Text], Field(max_length=OVERRIDES)] = Field(
        default_factory=list,
        description="Changes as on the command line: section.key=value, or section.key=default.",
    )


class Form(Base):
    """The form of a new run or training."""

    kind: Literal["run", "training"] = "run"
    name: Annotated[str, Field(max_length=64)] = Field("", description="Folder; generated if empty.")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    policy: Annotated[str, Field(max_length=64)] = Field("greedy", description="Of a run, by name.")
    policy_of: Name | None = Field(None, description="Use the policy of this training instead.")
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Of a run; default: the scenario's."
    )
    learner: Annotated[list[Text], Field(max_length=OVERRIDES)] = Field(
        default_factory=list, description="Settings of a training, key=value."
    )
    learning: Literal["surrogate", "real"] = Field("surrogate", description="Of a training.")


class Problem(BaseModel):
    """A validation error: its key and one sentence."""

    key: str
    sentence: str


class Answer(BaseModel):
    """The result of validating a form."""

    ok: bool
    sentence: str = Field("", description="The error, as the command line would print it.")
    problems: list[Problem] = Field(default_factory=list, description="All problems, by key.")
    command: str = Field(description="The equivalent command.")


class Preset(BaseModel):
    """A scenario to start from."""

    name: str
    description: str
    values: dict[str, Any]


class Choices(BaseModel):
    """Form options: JSON schemas with descriptions, presets and policies."""

    scenario: dict[str, Any]
    learner: dict[str, Any]
    presets: list[Preset]
    policies: list[str] = Field(description="Policies of a run: registered policies and algorithms.")
    live: list[str] = Field(description="Policies that decide instantly in any network.")
    slow: list[str] = Field(description="Policies that may take seconds.")
    algorithms: list[str]


@cache
def choices() -> Choices:
    """The form options; computed once."""
    presets = []
    for name in PRESETS:
        scenario = load_scenario(name)
        presets.append(Preset(name=name, description=scenario.description, values=scenario.model_dump(mode="json")))
    live = quick_policies()
    return Choices(
        scenario=Scenario.model_json_schema(),
        learner=LearnerSettings.model_json_schema(),
        presets=presets,
        policies=[*POLICIES.names, *ALGORITHMS],
        live=live,
        slow=[name for name in POLICIES.names if name not in live],
        algorithms=list(ALGORITHMS),
    )


def scenario_of(base: Base, folder: Folder) -> Scenario:
    """The scenario of a form; raises `ScenarioError` with the message of the command line."""
    table, where = table_of(base, folder)
    return scenario_from_dict(table, where=where)


def settings_of(form: Form) -> LearnerSettings:
    """The learner settings of a form."""
    return learner_settings({}, form.learner, literal=False)


def judge(form: Form, folder: Folder) -> Answer:
    """Validate a form; all problems are listed by key."""
    try:
        scenario = scenario_of(form, folder)
        check_start(form, scenario, folder)
    except CoveyError as error:
        return Answer(ok=False, sentence=str(error), problems=_problems(form, folder), command=command_of(form))
    return Answer(ok=True, command=command_of(form))


def check_start(form: Form, scenario: Scenario, folder: Folder) -> None:
    """Raise the errors of starting the form that can be detected in advance."""
    if form.kind == "training":
        settings_of(form)
        check_tasks_are_known(scenario)
        if form.learning == "surrogate":
            calibration_for(scenario)
    elif form.policy_of is not None:
        policy_file(form, folder)
    else:
        POLICIES.check(form.policy, also=ALGORITHMS, own=False)
        if is_learned(form.policy):
            check_tasks_are_known(scenario)
    if form.name:
        folder.name_for(form.name, "")


def policy_file(form: Form, folder: Folder) -> Path:
    """The file of the trained policy of a form, relative to the folder."""
    return folder.file(form.policy_of or "", POLICY).relative_to(folder.root)


def command_of(form: Form) -> str:
    """The equivalent command, run in the folder of the dashboard."""
    source = f"{form.entry}/scenario.toml" if form.entry else form.preset
    words = ["covey", "train" if form.kind == "training" else "run", source]
    for override in form.overrides:
        words += ["--set", override]
    if form.kind == "training":
        for setting in form.learner:
            words += ["--learner", setting]
        words += ["--learning", form.learning] if form.learning != "surrogate" else []
    else:
        words += ["--policy", f"{form.policy_of}/{POLICY}" if form.policy_of else form.policy]
        words += ["--rounds", str(form.rounds)] if form.rounds is not None else []
    words += ["--seed", str(form.seed)]
    words += ["--out", form.name] if form.name else []
    return shlex.join(words)


def table_of(base: Base, folder: Folder) -> tuple[dict[str, Any], str]:
    """The scenario of a form as a nested dictionary, not yet validated, and its name in error messages."""
    if base.entry is not None:
        source: str | Path = folder.file(base.entry, "scenario.toml")
        where = f"scenario '{base.entry}/scenario.toml'"
    elif base.preset in PRESETS:
        source, where = base.preset, f"scenario '{base.preset}'"
    else:
        raise ScenarioError(f"there is no preset '{base.preset}'; choose one of {', '.join(PRESETS)}")
    try:
        table = scenario_table(source, base.overrides)
    except (RecursionError, ValueError):
        raise ScenarioError("a value is nested too deeply or too long; write it more simply") from None
    _check_sizes(table)
    _check_path(table, folder)
    _check_parts(table)
    return table, where


def _check_sizes(table: dict[str, Any]) -> None:
    network = table.get("network")
    for key, largest in NETWORK.items():
        value = network.get(key) if isinstance(network, dict) else None
        if isinstance(value, (int, float)) and value > largest:
            raise ScenarioError(
                f"'network.{key}' is {value}, but the dashboard takes at most {largest:,}; use the command line for"
                " more"
            )


def _check_path(table: dict[str, Any], folder: Folder) -> None:
    """Refuse data outside the folder: starting a run must not grant read access to the whole machine."""
    data = table.get("data")
    path = data.get("path") if isinstance(data, dict) else None
    if not isinstance(path, str) or not path:
        return
    inside = not path.startswith("~") and "\0" not in path
    if inside:
        real = os.path.realpath(folder.root / path)
        inside = os.path.commonpath([real, folder.root]) == str(folder.root)
    if not inside:
        raise ScenarioError(
            f"'data.path' is {path!r}, but the dashboard uses data inside its folder only; leave it empty to use the"
            " COVEY_DATA folder, or use the command line"
        )


def _check_parts(table: dict[str, Any]) -> None:
    """Refuse parts by `module:attribute`: a web page must not choose code to import."""
    for registry in REGISTRIES:
        section, _, key = registry.key.partition(".")
        values = table.get(section)
        name = values.get(key) if isinstance(values, dict) else None
        if isinstance(name, str) and is_reference(name):
            raise ScenarioError(
                f"'{registry.key}' is '{name}', but the dashboard imports no code by name; choose one of"
                f" {', '.join(registry.names)}, or use the command line"
            )


def _problems(form: Form, folder: Folder) -> list[Problem]:
    try:
        table, _ = table_of(form, folder)
    except CoveyError:
        return []
    return [Problem(key=key, sentence=sentence) for key, sentence in scenario_problems(table)]
