"""The example of a policy of one file, used from outside the package."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import covey
from covey.association import get_policy
from covey.cli.main import main

ROOT = Path(__file__).parents[1]
NAME = "examples.parts.strongest_policy:strongest"


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_stations_take_their_strongest_users() -> None:
    seen = []
    strongest = get_policy(NAME)

    def watched(observation: covey.Observation, rng: np.random.Generator) -> np.ndarray:
        chosen = strongest(observation, rng)
        seen.append((observation, chosen))
        return chosen

    covey.simulate("quick", policy=watched, rounds=3, seed=1)
    assert len(seen) == 3
    for observation, chosen in seen:
        assert chosen.any()
        assert not (chosen & ~observation.eligible).any()
        assert (chosen.sum(axis=0) <= 1).all()
        assert (chosen.sum(axis=1) <= observation.blocks).all()
        for station, user in np.argwhere(chosen):
            able = observation.eligible[:, user]
            assert observation.gains[user, station] == observation.gains[user, able].max()


def test_python_and_the_command_line_agree(tmp_path: Path) -> None:
    history = covey.simulate("quick", policy=NAME, rounds=2, seed=1)
    assert history.policy == NAME
    options = ["--policy", NAME, "--rounds", "2", "--seed", "1", "--out", str(tmp_path / "run"), "-q"]
    assert command("run", "quick", *options) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["policy"] == NAME
    with open(tmp_path / "run" / "rounds.csv", newline="") as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    assert losses == history.column("loss").tolist()
    assert command("run", "--resume", "--rounds", "3", "--out", str(tmp_path / "run"), "-q") == 0


def test_it_is_compared_with_the_references_in_worker_processes(tmp_path: Path) -> None:
    options = ["--layouts", "2", "--against", "nearest", "--processes", "2", "--out", str(tmp_path), "-q"]
    assert command("evaluate", NAME, "quick", *options) == 0
    compared = json.loads((tmp_path / "comparison.json").read_text())
    assert set(compared["policies"]) == {"nearest", NAME}
