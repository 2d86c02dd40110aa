from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.data.idx_files import write_idx
from typer.testing import CliRunner

from covey.cli.data import app
from covey.errors import DataError, OutputError

TOML = """
name = "small"
[network]
users = 6
tasks = 2
[data]
name = "digits"
partition = "{partition}"
samples_min = 20
samples_max = 30
test_samples = 10
[privacy]
noise = "off"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(TOML.format(partition="label_mix"))
    return str(path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "500"})
    assert result.exit_code == 0, result.output
    return result.stdout


def answer(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def is_png(path: Path) -> bool:
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5000


def test_list_tells_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    (tmp_path / "cifar-10-batches-bin").mkdir()
    rows = {row["name"]: row for row in answer("list")}
    assert list(rows) == ["digits", "cifar10", "femnist", "mnist", "fashion_mnist", "synthetic", "folder"]
    assert rows["digits"]["present"]
    assert rows["digits"]["samples"] == 1797
    assert not rows["cifar10"]["present"], "an empty folder is no data set"
    assert rows["cifar10"]["how_to_get"] == "covey data fetch cifar10"
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").write_bytes(b"")
    rows = {row["name"]: row for row in answer("list")}
    assert rows["cifar10"]["where"] == str(tmp_path / "cifar-10-batches-bin")
    assert rows["cifar10"]["samples"] == 60_000
    text = run("list")
    assert "covey data fetch fashion_mnist" in text
    assert str(tmp_path / "cifar-10-batches-bin") in text


def test_list_survives_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    (tmp_path / "femnist.npz").write_bytes(b"broken")
    row = next(row for row in answer("list") if row["name"] == "femnist")
    assert not row["present"]
    assert "femnist.npz cannot be read" in row["problem"]
    assert "femnist.npz cannot be read" in run("list")


def test_list_and_inspect_show_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    row = next(row for row in answer("list") if row["name"] == "mnist")
    assert not row["present"]
    assert row["how_to_get"] == "covey data fetch mnist"
    write_idx(tmp_path / "mnist")
    row = next(row for row in answer("list") if row["name"] == "mnist")
    assert (row["present"], row["samples"], row["where"]) == (True, 5, str(tmp_path / "mnist"))
    told = answer("inspect", "mnist")["dataset"]
    assert (told["shape"], told["training_samples"], told["test_samples"]) == ([1, 28, 28], 3, 2)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(b"")
    assert "must start with 00000801" in run("list"), "damaged files are listed with what is wrong"


def test_inspect_a_scenario_lists_every_user(scenario: str) -> None:
    told = answer("inspect", scenario, "--seed", "3")
    assert told["dataset"]["training_samples"] + told["dataset"]["test_samples"] == 1797
    assert told["seed"] == 3
    assert [user["user"] for user in told["users"]] == list(range(6))
    assert {user["group"] for user in told["users"]} == {0, 1}
    for user in told["users"]:
        assert sum(user["classes"].values()) == user["samples"]
        assert user["test_samples"] == 10
    text = run("inspect", scenario, "--seed", "3")
    first = told["users"][0]
    assert ", ".join(f"{name}: {n}" for name, n in first["classes"].items()) in text
    assert "group 1: 3 users" in text
    other = answer("inspect", scenario, "--seed", "4")
    assert [u["samples"] for u in other["users"]] != [u["samples"] for u in told["users"]]


def test_overrides_reach_the_scenario(scenario: str) -> None:
    told = answer("inspect", scenario, "--set", "network.users=50", "--set", "data.name=synthetic")
    assert len(told["users"]) == 50
    assert told["dataset"]["name"] == "synthetic"
    text = run("inspect", scenario, "--set", "network.users=50", "--set", "data.name=synthetic")
    assert "and 10 more users" in text


def test_inspect_a_data_set_and_a_folder(tmp_path: Path) -> None:
    told = answer("inspect", "digits")
    assert "users" not in told
    assert told["dataset"]["shape"] == [1, 8, 8]
    np.save(tmp_path / "x.npy", np.zeros((20, 3)))
    np.save(tmp_path / "y.npy", np.arange(20) % 4)
    assert answer("inspect", str(tmp_path))["dataset"]["training_samples"] == 16
    assert "3" in run("inspect", str(tmp_path))


@pytest.mark.parametrize("partition", ["label_mix", "rotation", "label_swap"])
def test_pictures_of_scenarios(tmp_path: Path, partition: str) -> None:
    path = tmp_path / "small.toml"
    path.write_text(TOML.format(partition=partition))
    picture = tmp_path / "new" / "users.png"
    assert "picture: " in run("inspect", str(path), "--picture", str(picture))
    assert is_png(picture)


def test_pictures_of_data_sets_many_users_and_many_classes(tmp_path: Path, scenario: str) -> None:
    run("inspect", "digits", "--picture", str(tmp_path / "a.png"))
    big = ("--set", "network.users=60", "--set", "data.name=synthetic", "--set", "data.classes=30")
    told = answer("inspect", scenario, *big, "--picture", str(tmp_path / "b.png"))
    assert len(told["users"]) == 60, "JSON stays clean when a picture is drawn too"
    run("inspect", "synthetic", "--picture", str(tmp_path / "c.svg"))
    assert is_png(tmp_path / "a.png")
    assert is_png(tmp_path / "b.png")
    assert (tmp_path / "c.svg").read_text().startswith("<?xml")


def test_wrong_arguments_are_explained(tmp_path: Path, scenario: str) -> None:
    for arguments, error, words in (
        (["inspect", "nothing"], DataError, "neither a preset"),
        (["inspect", "folder"], DataError, "name the folder itself"),
        (["inspect", "cifar10"], DataError, "covey data fetch cifar10"),
        (["fetch", "imagenet"], DataError, "choose one of"),
        (["inspect", scenario, "--picture", f"{scenario}/x.png"], OutputError, "cannot be written"),
    ):
        with pytest.raises(error, match=words):
            CliRunner().invoke(app, arguments, catch_exceptions=False)
    for arguments in (["inspect", "digits", "--set", "a=1"], ["inspect", "digits", "--picture", "x.bmp"]):
        assert CliRunner().invoke(app, arguments).exit_code == 2


def test_fetch_prints_one_line() -> None:
    assert run("fetch", "digits") == "'digits' comes with scikit-learn, nothing to fetch\n"


@pytest.mark.parametrize("command", ["list", "fetch", "inspect"])
def test_help_explains_the_command(command: str) -> None:
    text = " ".join(run(command, "--help").split())
    assert {"list": "COVEY_DATA", "fetch": "--to", "inspect": "SCENARIO_OR_NAME"}[command] in text
