"""Submissions of runs: what their folders hold, who may play them, and what is left when they are withdrawn."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.deploy.near import NearCourier, deployed, make_devices, open_devices, run_folder, small

from covey.deploy import Settings, server
from covey.deploy.folders import read_groups
from covey.deploy.runs import follow, new_run
from covey.errors import DataError, ResumeError

GIVEN = {"seed": 0, "policy": "greedy", "rounds": 2}


def write_trace(path: Path, x_m: float) -> Path:
    lines = [f"1,{user},{x_m + user},{100.0 + user}" for user in range(5)]
    path.write_text("\n".join(["round,user,x_m,y_m", *lines]), encoding="utf-8")
    return path


def test_groups_may_be_more_than_tasks(tmp_path: Path) -> None:
    scenario = small("network.tasks=1")
    make_devices(scenario, 0, tmp_path / "site")
    path = tmp_path / "site" / "server" / "groups.csv"
    assert set(read_groups(path, 5, scenario.groups).tolist()) == {0, 1}
    with pytest.raises(DataError, match=r"group \(0 to 0, by data\.groups\)"):
        read_groups(path, 5, 1)
    path.write_text("user,group\n3,1\n", encoding="utf-8")
    assert read_groups(path, 5, 2).tolist() == [-1, -1, -1, 1, -1]


def test_a_run_keeps_its_own_trace_and_groups(tmp_path: Path) -> None:
    scenario = small()
    devices = make_devices(scenario, 0, tmp_path / "site")
    groups = tmp_path / "site" / "server" / "groups.csv"
    trace = write_trace(tmp_path / "positions.csv", 50.0)
    run = tmp_path / "run"
    settings = new_run(scenario, run, groups=groups, trace=trace, **GIVEN)  # type: ignore[arg-type]
    assert (settings.groups, settings.trace) == ("groups.csv", "trace.csv")
    assert (run / "groups.csv").read_bytes() == groups.read_bytes()
    # The original may change or go; the folder may move.
    write_trace(trace, 400.0)
    groups.unlink()
    moved = run.rename(tmp_path / "moved")
    history = deployed(NearCourier(devices), moved).history
    np.testing.assert_allclose(history.user_column("x_m")[0], 50.0 + np.arange(5))
    assert (history.groups >= 0).all()
    new_run(scenario, moved, overwrite=True, **GIVEN)  # type: ignore[arg-type]
    assert not (moved / "trace.csv").exists()
    assert not (moved / "groups.csv").exists()
    with pytest.raises(DataError, match="cannot be read"):
        new_run(scenario, tmp_path / "another", trace=tmp_path / "nothing.csv", **GIVEN)  # type: ignore[arg-type]
    assert not (tmp_path / "another").exists()


class Submitted:
    """Keeps what would be submitted to a SuperLink."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def start(self, name: str, command: list[str]) -> SimpleNamespace:
        self.commands.append(command)
        return SimpleNamespace(poll=lambda: None)

    def log(self, name: str) -> Path:
        return Path(name)


def token_of(command: list[str]) -> str:
    token: str = json.loads(command[-1].rpartition("token=")[2])
    return token


def test_a_submission_that_was_interrupted_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr", reason="Flower is not installed; make test-deploy installs it")
    new_run(small(), tmp_path, **GIVEN)  # type: ignore[arg-type]
    started: Any = Submitted()
    seen = []

    def interrupt(seconds: float) -> None:
        seen.append(Settings.read(tmp_path).token)
        raise KeyboardInterrupt

    monkeypatch.setattr("covey.deploy.runs.time.sleep", interrupt)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            follow(started, tmp_path, lambda said: None)
    first, second = (token_of(command) for command in started.commands)
    assert seen == [first, second]
    assert len({first, second, Settings.read(tmp_path).token, ""}) == 4
    # Whenever the SuperLink starts what was submitted, it ends at once and touches nothing.
    (tmp_path / "outcome.json").write_text("{}", encoding="utf-8")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for token in (first, second, ""):
        with pytest.raises(server.Withdrawn, match="has been withdrawn"):
            server.serve(None, str(tmp_path), token)  # type: ignore[arg-type]
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_submission_that_is_interrupted_while_it_begins_is_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr", reason="Flower is not installed; make test-deploy installs it")
    new_run(small(), tmp_path, token="mine", **GIVEN)  # type: ignore[arg-type]
    say = server._say

    def interrupted(folder: Path, said: dict[str, Any]) -> None:
        # Whoever interrupts has not seen this process yet, and has changed the token.
        new_run(small(), folder, token="other", **GIVEN)  # type: ignore[arg-type]
        say(folder, said)

    monkeypatch.setattr(server, "_say", interrupted)
    with pytest.raises(server.Withdrawn):
        server.serve(None, str(tmp_path), "mine")  # type: ignore[arg-type]
    assert not (tmp_path / "outcome.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("start.json", "", "is missing or damaged"),
        ("start.json", "[]", "is missing or damaged"),
        ("start.json", "{}", "is missing or damaged"),
        ("start.json", None, "is missing or damaged"),
        ("incidents.csv", "round,user\nx,1\n", "delete it to resume"),
    ],
)
def test_damaged_files_of_a_run_get_a_sentence(tmp_path: Path, name: str, content: str | None, words: str) -> None:
    scenario = small()
    make_devices(scenario, 0, tmp_path / "site")
    folder = run_folder(scenario, tmp_path / "run", rounds=1, metrics=False)
    deployed(NearCourier(open_devices(tmp_path / "site", 5)), folder)
    run_folder(scenario, folder, rounds=2, metrics=False)
    path = folder / name
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ResumeError, match=words):
        deployed(NearCourier(open_devices(tmp_path / "site", 5)), folder)
