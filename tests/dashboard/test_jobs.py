"""Real runs and trainings, started, followed, stopped and resumed through the dashboard."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.dashboard.conftest import Client, write_run
from tests.dashboard.test_follow import events, until
from tests.processes import LIMIT_S, started
from tests.processes import until as wait_until

from covey.dashboard.forms import Form
from covey.dashboard.jobs import BusyError, Jobs
from covey.dashboard.runs_folder import Folder
from covey.dashboard.scenario_keys import Settings

#: Long enough that nothing ends before it is stopped.
ENDLESS = 100_000
# Several processes start one after the other, and each may take its time.
pytestmark = pytest.mark.timeout(1200)


def wait_for(live: httpx.Client, name: str, right: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    entry: dict[str, Any] = {}

    def reached() -> bool:
        entry.update(live.get("/api/entry", params={"id": name}).json()["entry"])
        return right(entry)

    wait_until(reached, told=lambda: entry)
    return entry


def test_a_run_is_started_followed_stopped_resumed_and_extended(folder: Path, live: httpx.Client) -> None:
    form = {"name": "mine", "rounds": ENDLESS, "overrides": ["network.blocks=3"], "seed": 3}
    started = live.post("/api/start", json=form)
    assert (started.status_code, started.json()) == (201, {"id": "mine"})
    entry = live.get("/api/entry?id=mine").json()["entry"]
    assert (entry["status"], entry["stoppable"], entry["resumable"]) == ("running", True, False)

    with live.stream("GET", "/api/follow?id=mine", timeout=LIMIT_S) as response:
        stream = events(response)
        rows, _ = until(stream, "rows")
        more, _ = until(stream, "rows")
        assert [row["round"] for row in rows + more] == list(range(1, len(rows + more) + 1))
        assert until(stream, "frame")[0]["site"]["blocks"] == 3

        busy = live.post("/api/start", json={"name": "second"})
        assert busy.status_code == 409
        assert "1 of at most 1 jobs" in busy.json()["error"]
        assert not (folder / "second").exists()
        assert live.post("/api/resume", json={"id": "mine"}).status_code == 409

        assert live.post("/api/stop", json={"id": "mine"}).status_code == 202
        ended = wait_for(live, "mine", lambda one: one["status"] != "running")
    assert ended["status"] == "interrupted"
    assert (ended["resumable"], ended["message"]) == (True, "")
    assert 0 < ended["done"] < ENDLESS
    assert (folder / "mine" / "report.html").exists()
    assert live.post("/api/stop", json={"id": "mine"}).status_code == 409

    assert live.post("/api/resume", json={"id": "mine"}).status_code == 202
    again = wait_for(live, "mine", lambda one: one["done"] > ended["done"])
    assert again["status"] == "running"
    live.post("/api/stop", json={"id": "mine"})
    done = wait_for(live, "mine", lambda one: one["status"] == "interrupted")["done"]

    assert live.post("/api/resume", json={"id": "mine", "rounds": done + 1}).status_code == 202
    finished = wait_for(live, "mine", lambda one: one["status"] == "finished")
    assert (finished["done"], finished["total"]) == (done + 1, done + 1)
    curve = live.get("/api/curves?id=mine&column=loss").json()["curves"]["loss"][0]
    assert curve["x"][-1] == done + 1
    refused = live.post("/api/resume", json={"id": "mine"})
    assert refused.status_code == 409
    assert "extend" in refused.json()["error"]


def test_a_training_is_started_and_its_policy_used(folder: Path, live: httpx.Client) -> None:
    small = ["epochs=2", "networks=2", "updates=1", "validation=2", "validate_every=1", "algorithm=iql"]
    answer = live.post("/api/start", json={"kind": "training", "learner": small})
    assert answer.json() == {"id": "quick-iql-seed0"}
    finished = wait_for(live, "quick-iql-seed0", lambda one: one["status"] != "running")
    assert (finished["status"], finished["kind"], finished["done"]) == ("finished", "training", 2), finished
    assert live.post("/api/resume", json={"id": "quick-iql-seed0", "rounds": 9}).status_code == 409
    answer = live.post("/api/start", json={"policy_of": "quick-iql-seed0", "rounds": 1})
    assert answer.json() == {"id": "quick-quick-iql-seed0-seed0"}
    run = wait_for(live, answer.json()["id"], lambda one: one["status"] != "running")
    assert (run["status"], run["policy"]) == ("finished", "quick-iql-seed0/policy.safetensors"), run


def test_a_run_that_cannot_begin_says_why(folder: Path, live: httpx.Client) -> None:
    # Nothing is wrong with the scenario itself, but the data set has too few samples.
    answer = live.post("/api/start", json={"overrides": ["data.samples_max=5000"]})
    assert answer.status_code == 201
    entry = wait_for(live, "quick-greedy-seed0", lambda one: one["status"] != "running")
    assert entry["status"] == "failed"
    assert "samples_max" in entry["message"]
    assert entry["resumable"] is False
    assert live.post("/api/resume", json={"id": "quick-greedy-seed0"}).status_code == 409
    output = live.get("/api/file?id=quick-greedy-seed0&name=output.txt").text
    assert "Traceback" not in output


def test_work_that_somebody_else_does_is_seen_and_can_be_stopped(folder: Path, client: Client) -> None:
    command = [sys.executable, "-m", "covey", "run", "quick", "--rounds", str(ENDLESS), "--out", "theirs", "-q"]
    with started(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        process.wait_until(lambda: any(entry["done"] for entry in client.get("/api/entries").json()))
        entries = client.get("/api/entries").json()
        assert (entries[0]["status"], entries[0]["stoppable"]) == ("running", True)
        refused = client.post("/api/resume", json={"id": "theirs"})
        assert "still running" in refused.json()["error"]
        assert client.post("/api/stop", json={"id": "theirs"}).status_code == 202
        assert process.exit_code() == 130
    assert client.get("/api/entries").json()[0]["status"] == "interrupted"


def test_work_that_ignores_ctrl_c_is_stopped_too(folder: Path, client: Client) -> None:
    # As a script leaves it that starts work in the background.
    command = f"trap '' INT; exec {shlex.quote(sys.executable)} -m covey run quick --rounds {ENDLESS} --out a --quiet"
    with started(["sh", "-c", command], cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        process.wait_until(lambda: any(entry["done"] for entry in client.get("/api/entries").json()))
        assert client.post("/api/stop", json={"id": "a"}).status_code == 202
        assert process.exit_code() == 130
    assert client.get("/api/entries").json()[0]["status"] == "interrupted"


def test_stopping_and_resuming_what_is_not_there(folder: Path, client: Client) -> None:
    write_run(folder, "a")
    for path in ("stop", "resume"):
        assert client.post(f"/api/{path}", json={"id": "nothing"}).status_code == 404
        assert client.post(f"/api/{path}", json={}).status_code == 422
        assert client.post(f"/api/{path}", json={"id": "a"}).status_code == 409
    assert client.post("/api/resume", json={"id": "a", "rounds": 2}).status_code == 409
    assert client.post("/api/resume", json={"id": "a", "rounds": 0}).status_code == 422


def test_no_jobs_may_be_allowed(folder: Path) -> None:
    answer = Client(Settings(folder, jobs=0)).post("/api/start", json={})
    assert answer.status_code == 409
    assert "--jobs" in answer.json()["error"]
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    answer = Client(Settings(folder)).post("/api/start", json={})
    assert answer.status_code == 422
    assert "may not write" in answer.json()["error"]


def test_a_job_on_another_machine_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(folder, "a")
    monkeypatch.setattr("covey.dashboard.catalogue.worker_of", lambda path: 0)
    jobs = Jobs(Folder(folder), 1)
    entry = jobs.catalogue.entry("a")
    assert (entry.status, entry.stoppable) == ("running", False)
    with pytest.raises(BusyError, match="another machine"):
        jobs.stop("a")
    with pytest.raises(BusyError, match="1 of at most 1"):
        jobs.start(Form())


def test_jobs_do_not_inherit_the_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def start(words: list[str], **options: Any) -> Any:
        seen.update(options, words=words)
        raise OSError(8, "Exec format error")

    monkeypatch.setenv("COVEY_TOKEN", "secret-secret-secret")
    monkeypatch.setattr("covey.dashboard.jobs.subprocess.Popen", start)
    answer = Client(Settings(folder)).post("/api/start", json={"name": "a"})
    assert answer.status_code == 422
    assert "cannot be started" in answer.json()["error"]
    assert "COVEY_TOKEN" not in seen["env"]
    assert seen["start_new_session"] is True
    assert seen["words"][1:5] == ["-m", "covey", "run", "a/scenario.toml"]
