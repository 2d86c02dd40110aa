"""The bound against real rounds as a user meets it: output, files, exit codes, and numbers found another way."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from matplotlib.image import imread

from covey.cli.main import main
from covey.evaluation.bound_runs import refuse_other_steps
from covey.scenario import PAPER_START, load_scenario
from covey.scenario.load import scenario_table
from covey.simulation import Simulation
from covey.theory import CAUSES

Ask = Callable[..., tuple[int, str, str]]
ROUNDS = 4


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Exit code, standard output and standard error of `covey bound` with these arguments."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["bound", *map(str, arguments)])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a few rounds of `paper_digits`."""
    out = tmp_path_factory.mktemp("bound") / "paper_digits"
    with pytest.raises(SystemExit) as end:
        main(["bound", "paper_digits", "--rounds", str(ROUNDS), "--out", str(out), "--quiet"])
    assert not end.value.code
    return out


@pytest.fixture
def found(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "bound.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)


def test_the_bound_holds_on_a_softmax_model_and_says_how_loose_it_is(found: dict[str, Any]) -> None:
    # Losses are convex, L is exact: on this seed no draw of the noise exceeds the expectation.
    assert found["held_steps"] == found["steps"] > ROUNDS
    assert 1.0 < found["looseness_median"] < 1.5
    assert found["looseness_max"] < 2.0
    assert found["worst_case_looseness_median"] > found["looseness_median"]
    assert found["accumulated_looseness"] > 1.0
    for task in found["tasks"]:
        assert task["curvature"]["kind"] == "bound"
        assert task["stationarity"]["measured"] <= task["stationarity"]["bound"] <= task["stationarity"]["worst"]


def test_bounds_are_ordered_and_their_parts_add_up(found: dict[str, Any]) -> None:
    for task in found["tasks"]:
        rounds = {name: np.array(values) for name, values in task["rounds"].items()}
        parts = [rounds["bound_kept"], *(rounds[f"bound_{name}"] for name in CAUSES)]
        np.testing.assert_allclose(sum(parts), rounds["bound"])
        room = 1e-6
        assert np.all(rounds["bound_lemma"] <= rounds["bound"] + room)
        assert np.all(rounds["bound"] <= rounds["bound_worst"] + room)
        np.testing.assert_allclose(rounds["loss"][1:], rounds["next_loss"][:-1])
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert found["dominant"] == max(found["added"], key=lambda name: found["added"][name])


def test_losses_and_noise_are_those_of_the_run(found: dict[str, Any]) -> None:
    with Simulation(load_scenario("paper_digits", PAPER_START), "greedy", rounds=ROUNDS, seed=0) as simulation:
        while not simulation.done:
            simulation.play()
        task_of = {task["group"]: task["task"] for task in found["tasks"]}
        world = simulation.world
        tasks = np.array([task_of[group] for group in world.groups.tolist()])
        world.engine.publish(simulation.state.models, simulation.state.movements)
        losses = world.engine.evaluate(tasks).train_loss_sum
    for task in found["tasks"]:
        members = world.groups == task["group"]
        assert task["samples"] == world.samples[members].sum()
        expected = losses[members].sum() / world.samples[members].sum()
        assert task["rounds"]["next_loss"][-1] == pytest.approx(expected, rel=1e-5)
        drawn, energy = (np.array(task["rounds"][name]) for name in ("noise", "noise_energy"))
        played = energy > 0
        np.testing.assert_allclose(drawn[played] ** 2, energy[played], rtol=0.3)  # 650 weights: within 5 deviations
        assert np.all(drawn[~played] == 0)


def test_files_hold_every_task_and_round(folder: Path, found: dict[str, Any]) -> None:
    with open(folder / "bound.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == ROUNDS * len(found["tasks"])
    assert float(rows[1]["bound"]) == found["tasks"][0]["rounds"]["bound"][1]
    height, width = imread(folder / "bound.png").shape[:2]
    assert width > 1500
    assert height > 600


def test_the_screen_says_what_dominates_and_what_is_assumed(ask: Ask) -> None:
    code, out, _ = ask("quick", "--rounds", 1, "--set", "clustering.rule=oracle", "--set", "privacy.noise=off")
    text = " ".join(out.split())
    assert code == 0
    for words in (
        "The bound held in",
        "exact bound",
        "mu = 0",
        "Learning rate x L",
        "promised descent",
    ):
        assert words in text
    assert "matched with" not in text  # oracle tasks are groups
    assert "paper's start" not in text  # to oracle, neither starts nor offers apply
    _, out, _ = ask("quick", "--rounds", 1)
    assert "paper's start and no offers" in " ".join(out.split())


@pytest.mark.parametrize(
    "changes",
    [
        ["clustering.max_tasks=6"],
        ["clustering.first_tasks=2"],
        ["clustering.max_tasks=6", "clustering.rescue=false"],
    ],
    ids=" ".join,
)
def test_models_that_are_added_later_are_refused_with_a_way_out(ask: Ask, changes: list[str]) -> None:
    chosen = [word for change in changes for word in ("--set", change)]
    code, _, error = ask("quick", "--rounds", 1, *chosen)
    assert code != 0
    text = " ".join(error.split())
    assert "models of this scenario are added later" in text
    assert "leave out clustering.max_tasks and clustering.first_tasks" in text
    assert "rescue" not in text
    reset = ("--set", "clustering.max_tasks=default", "--set", "clustering.first_tasks=default")
    assert ask("quick", "--rounds", 1, "--quiet", *chosen, *reset)[0] == 0


@pytest.mark.parametrize(("option", "value"), [("rescue", "true"), ("start", "release")])
def test_a_start_that_the_scenario_names_is_kept_and_refused(ask: Ask, option: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(tomli_w.dumps(scenario_table("quick", [f"clustering.{option}={value}"])), encoding="utf-8")
    code, _, error = ask(path, "--rounds", 1)
    assert code != 0
    assert "may replace models" in " ".join(error.split())
    # What it does not name is replaced, and --set says the rest.
    assert ask(path, "--rounds", 1, "--quiet", "--set", f"clustering.{option}=default")[0] == 0


def test_without_noise_nothing_but_rounding_is_left_over(ask: Ask) -> None:
    code, out, _ = ask("quick", "--rounds", 2, "--set", "privacy.noise=off", "--set", "training.batch=20", "--json")
    assert code == 0
    record = json.loads(out)
    assert max(max(task["rounds"]["noise"]) for task in record["tasks"]) < 1e-5
    assert record["added"]["noise"] == 0.0
    assert record["largest_excess"] == 0.0


def test_other_models_are_estimated_and_say_so(ask: Ask) -> None:
    code, out, _ = ask("quick", "--rounds", 1, "--set", "model.name=mlp", "--json")
    record = json.loads(out)
    assert code == 0
    assert {task["curvature"]["kind"] for task in record["tasks"]} == {"estimate"}
    assert all(0 < task["curvature"]["mean"] < task["curvature"]["largest"] < 100 for task in record["tasks"])
    assert any("ESTIMATE" in note for note in record["remarks"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere"], 2, "nowhere"),
        (["quick", "--policy", "best"], 6, "best"),
        (["quick", "--set", "training.rate=1"], 2, "training.rate"),
        (["quick", "--rounds", "0"], 2, "--rounds"),
        (["quick", "--set", "clustering.rescue=true"], 2, 'set clustering.start = "random" and clustering.rescue'),
        (["quick", "--set", "clustering.start=release"], 2, "may replace models"),
    ],
)
def test_mistakes_are_one_sentence_and_a_code(ask: Ask, arguments: list[str], code: int, words: str) -> None:
    found, out, err = ask(*arguments)
    assert (found, out) == (code, "")
    assert words in err


def test_a_folder_that_is_a_file_is_refused(ask: Ask, tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("x")
    code, _, err = ask("quick", "--rounds", 1, "--out", taken)
    assert code == 4
    assert "in the way" in err


@pytest.mark.parametrize(
    "change", ["training.steps=3", "training.proximal=0.1", "training.local=sgd", "privacy.unit=device"]
)
def test_a_bound_names_the_key_that_chose_other_steps_before_it_plays(ask: Ask, change: str) -> None:
    key = change.partition("=")[0]
    code, _, error = ask("quick", "--rounds", 1, "--set", change)
    assert code == 2
    text = " ".join(error.split())
    assert text.startswith("Error:")  # and no bars before
    assert f"put it back with {key}=default" in text
    with Simulation(load_scenario("quick", [*PAPER_START, change, f"{key}=default"]), rounds=1) as simulation:
        refuse_other_steps(simulation)
