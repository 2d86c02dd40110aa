"""Every kind of part has an example, which is found by name in a scenario file, on the command line and from Python."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pages import ROOT

import covey
from covey.cli.main import main
from covey.errors import CoveyError
from covey.parts import POLICIES, REGISTRIES, Registry
from covey.scenario import dump_scenario

#: The example of every kind, and what else the scenario `quick` needs for it.
EXAMPLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "dataset": ("two_rings:load", ("data.mixes=default", "network.tasks=2")),
    "partition": ("class_split:deal", ()),
    "transform": ("row_and_column_sums:sums", ()),
    "data_over_time": ("label_swap:LabelSwap", ()),
    "model": ("wide_model:build", ()),
    "identification": ("similarity_rule:Similarity", ()),
    "start": ("perturbed_start:PerturbedStart", ()),
    "announcement": ("randomised_response:RandomisedResponse", ()),
    "policy": ("strongest_policy:strongest", ()),
    "uplink": ("tdma_uplink:Tdma", ()),
    "channel": ("walls:Walled", ()),
    "path_loss": ("walls:free_space", ()),
    "mobility": ("shuttle:Shuttle", ()),
    "training": ("two_steps:TwoSteps", ()),
    "personal": ("fine_tuned:FineTuned", ()),
    "loss": ("squared_error:squared_error", ()),
    "gradients": ("float64_gradients:Float64", ()),
    "aggregation": ("median_aggregation:Median", ()),
}
ROUNDS, SEED = 2, 1
each_kind = pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `covey` in the folder that holds `examples`; gives its exit code."""
    monkeypatch.chdir(ROOT)

    def run(*arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return int(ended.value.code or 0)

    return run


def options(registry: Registry, name: str) -> tuple[list[str], str]:
    """Overrides and policy of a run with the part `name`."""
    overrides = list(EXAMPLES[registry.kind][1])
    return (overrides, name) if registry is POLICIES else ([f"{registry.key}={name}", *overrides], "greedy")


def losses(folder: Path) -> list[float]:
    with (folder / "rounds.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def test_every_kind_has_an_example_that_the_pages_name() -> None:
    assert set(EXAMPLES) == {registry.kind for registry in REGISTRIES}
    files = {example.split(":")[0] for example, _ in EXAMPLES.values()}
    assert files == {path.stem for path in (ROOT / "examples" / "parts").glob("*.py")}
    page = (ROOT / "examples" / "parts" / "README.md").read_text(encoding="utf-8")
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for registry in REGISTRIES:
        example = EXAMPLES[registry.kind][0]
        name = example.split(":")[0]
        given = registry.key + " " if registry is POLICIES else f"--set {registry.key}="
        assert f"]({name}.py) | `covey run quick {given}examples.parts.{example}" in page
        protocol = f"src/{registry.protocol.replace('.', '/')}.py"
        row = next(line for line in guide.splitlines() if f"](examples/parts/{name}.py)" in line and protocol in line)
        test = re.search(r"\]\((tests/test_examples_parts\w*\.py)\)", row)
        assert test is not None, row
        assert name in (ROOT / test[1]).read_text(encoding="utf-8"), f"{test[1]} does not use {name}"


@each_kind
def test_a_file_the_command_line_and_python_agree(
    registry: Registry, tmp_path: Path, command: Callable[..., int]
) -> None:
    name = f"examples.parts.{EXAMPLES[registry.kind][0]}"
    overrides, policy = options(registry, name)
    scenario = covey.load_scenario("quick", overrides)
    expected = covey.simulate(scenario, policy, rounds=ROUNDS, seed=SEED).column("loss").tolist()
    file = tmp_path / "mine.toml"
    file.write_text(dump_scenario(scenario), encoding="utf-8")
    if registry is not POLICIES:
        assert f'{registry.key.split(".")[1]} = "{name}"' in file.read_text(encoding="utf-8")
    sets = [word for override in overrides for word in ("--set", override)]
    for way, chosen in {"file": [str(file)], "set": ["quick", *sets]}.items():
        out = tmp_path / way
        often = ["--policy", policy, "--rounds", str(ROUNDS), "--seed", str(SEED), "--out", str(out), "--quiet"]
        assert command("run", *chosen, *often) == 0
        assert losses(out) == expected, way


@each_kind
def test_a_registered_name_is_all_that_a_part_needs(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = f"examples.parts.{EXAMPLES[registry.kind][0]}"
    monkeypatch.setattr(registry, "_registered", {"mine": registry.get(reference)})
    (named, own), (given, other) = options(registry, "mine"), options(registry, reference)
    first = covey.simulate(covey.load_scenario("quick", named), own, rounds=1, seed=SEED)
    second = covey.simulate(covey.load_scenario("quick", given), other, rounds=1, seed=SEED)
    assert first.models.tobytes() == second.models.tobytes()


@each_kind
def test_a_misspelt_name_gets_a_suggestion_and_all_names(
    registry: Registry, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    right = registry.builtin[0]
    wrong = right[:-1]
    chosen = ["--policy", wrong] if registry is POLICIES else ["--set", f"{registry.key}={wrong}"]
    # docs/commands.md: 6 for a policy, 2 for a scenario that is not allowed.
    assert command("run", "quick", *chosen, "--rounds", "1") == (6 if registry is POLICIES else 2)
    shown = capsys.readouterr()
    assert shown.out == ""
    sentence = shown.err.strip()
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    assert f"the {registry.words} '{wrong}' is unknown" in sentence
    assert f"did you mean '{right}'?" in sentence
    for name in registry.names:
        assert re.search(rf"[ ,]{re.escape(name)}[,;]", sentence), name
    overrides, policy = options(registry, wrong)
    with pytest.raises(CoveyError, match=r"^[^\n]*did you mean[^\n]*$"):
        covey.simulate(covey.load_scenario("quick", overrides), policy, rounds=1)


@each_kind
def test_a_module_or_attribute_that_is_not_there_gets_one_sentence(
    registry: Registry, command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("no_such_module:part", "examples.parts.walls:no_such_part"):
        overrides, policy = options(registry, name)
        sets = [word for override in overrides for word in ("--set", override)]
        arguments = ["run", "quick", *sets, "--policy", policy, "--rounds", "1", "--out", str(tmp_path / "run")]
        assert command(*arguments) == registry.error.exit_code, name
        shown = capsys.readouterr().err.strip()
        assert "\n" not in shown
        assert "Traceback" not in shown
        assert f"the {registry.words} '{name}' cannot be imported" in shown
