"""`covey sweep`: every combination, kept and gone on with; the policies of `covey train` at any number of processes."""

from __future__ import annotations

import csv
import io
import json
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.processes import started

from covey.cli.main import main

SMALL = ["--learner", "epochs=1", "--learner", "networks=2", "--learner", "validation=2", "--learner", "updates=2"]
CHOICE = ["--vary", "algorithm=dpvd,iql", "--seeds", "2"]


@dataclass(frozen=True)
class Ended:
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


def covey(*arguments: object) -> Ended:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return Ended(int(end.value.code or 0), out.getvalue(), " ".join(err.getvalue().split()))


def swept(out: Path, *more: str) -> Ended:
    return covey("sweep", "quick", *SMALL, *CHOICE, "--out", out, *more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "two"
    assert swept(out, "--processes", "2").code == 0
    return out


def test_every_combination_has_a_folder_and_a_row(folder: Path) -> None:
    names = [f"algorithm={algorithm}-seed{seed}" for algorithm in ("dpvd", "iql") for seed in range(2)]
    with (folder / "sweep.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["folder"] for row in rows] == names
    assert [(row["algorithm"], row["seed"]) for row in rows] == [
        ("dpvd", "0"),
        ("dpvd", "1"),
        ("iql", "0"),
        ("iql", "1"),
    ]
    for name, row in zip(names, rows, strict=True):
        there = {path.name for path in (folder / name).iterdir()}
        assert {"policy.safetensors", "metrics.csv", "summary.json", "report.html", "scenario.toml"} <= there
        summary = json.loads((folder / name / "summary.json").read_text(encoding="utf-8"))
        assert float(row["reward"]) == summary["last_epoch"]["reward"]


def test_policies_are_those_of_covey_train_and_do_not_depend_on_processes(folder: Path, tmp_path: Path) -> None:
    assert swept(tmp_path / "one", "--processes", "1").code == 0
    assert (tmp_path / "one" / "sweep.csv").read_bytes() == (folder / "sweep.csv").read_bytes()
    trained = ["train", "quick", *SMALL, "--algorithm", "iql", "--seed", "1", "--out", tmp_path / "trained"]
    assert covey(*trained).code == 0
    for path in (tmp_path / "one", folder):
        policy = (path / "algorithm=iql-seed1" / "policy.safetensors").read_bytes()
        assert policy == (tmp_path / "trained" / "policy.safetensors").read_bytes()


def test_what_is_finished_is_not_computed_again(folder: Path, tmp_path: Path) -> None:
    lost = folder / "algorithm=dpvd-seed1" / "summary.json"
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/policy.safetensors")}
    row = lost.read_text(encoding="utf-8")
    lost.unlink()
    assert swept(folder, "--processes", "1").code == 0
    assert json.loads(lost.read_text(encoding="utf-8"))["last_epoch"] == json.loads(row)["last_epoch"]
    changed = {path.parent for path in before if path.stat().st_mtime_ns != before[path]}
    assert changed == {lost.parent}


def test_a_folder_with_another_training_is_refused(folder: Path) -> None:
    result = swept(folder, "--learner", "discount=0.5")
    assert result.code == 4
    assert "holds a training with another settings; choose another folder" in result.err


def test_rows_as_json(folder: Path) -> None:
    rows = json.loads(swept(folder, "--json").out)
    assert [row["folder"] for row in rows] == sorted(path.parent.name for path in folder.glob("*/summary.json"))


@pytest.mark.parametrize(
    ("vary", "sentence"),
    [
        (["algorithm"], "--vary is 'algorithm'; give a key and values"),
        (["algorithm=dpvd,,iql"], "give a key and values"),
        (["algorithm=dpvd", "algorithm=iql"], "--vary names the key 'algorithm' more than once"),
        (["learning_rate=1e-3,1e-3"], "asks twice for the training 'learning_rate=1e-3-seed0'"),
        (["algorithm=sarsa"], "algorithm"),
        (["network.planets=3"], "planets"),
        ([f"network.users=12,{'1' * 250}"], "network.users"),
    ],
)
def test_mistakes_are_found_before_anything_is_computed(vary: list[str], sentence: str, tmp_path: Path) -> None:
    options = [text for one in vary for text in ("--vary", one)]
    result = covey("sweep", "quick", *SMALL, *options, "--out", tmp_path / "out")
    assert result.code == 2
    assert sentence in result.err
    assert not (tmp_path / "out").exists()


def test_commas_in_brackets_do_not_separate(tmp_path: Path) -> None:
    vary = "network.area_m=[300.0, 300.0],[600.0, 600.0]"
    result = covey("sweep", "quick", *SMALL, "--vary", vary, "--seeds", "1", "--processes", "1", "--out", tmp_path)
    assert result.code == 0
    assert len(list(tmp_path.glob("*/policy.safetensors"))) == 2


def test_a_place_that_cannot_be_written_to_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = swept(tmp_path / "file" / "below")
    assert result.code == 4
    assert "cannot write" in result.err


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    # More trainings than can end before it is interrupted.
    command = [sys.executable, "-m", "covey", "sweep", "quick", *SMALL, "--seeds", "1000", "--out", "out"]
    with started([*command, "--processes", "1"], cwd=tmp_path) as process:
        process.wait_until(lambda: list((tmp_path / "out").glob("*/summary.json")))
        process.send(signal.SIGINT)
        assert process.exit_code() == 130
        errors = process.stderr
    assert "what is finished is kept: give the command again" in " ".join(errors.split())
    assert "Traceback" not in errors
    assert 1 <= len(list((tmp_path / "out").glob("*/summary.json"))) < 1000
