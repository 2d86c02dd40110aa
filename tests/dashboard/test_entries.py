"""What lists show, and from which files it is read."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.conftest import Client, write_run

from covey.dashboard.catalogue import Catalogue
from covey.dashboard.run_tables import Tables
from covey.dashboard.runs_folder import OUTPUT, Folder, NotFoundError
from covey.simulation.progress import PROGRESS, Progress


def one(folder: Path) -> dict[str, Any]:
    entry = Catalogue(Folder(folder)).entry("a")
    assert [entry] == Catalogue(Folder(folder)).entries()
    return entry.model_dump()


def test_a_finished_run(folder: Path, client: Client) -> None:
    before = time.time()
    path = write_run(folder, "a")
    entry = one(folder)
    assert before - 2 <= entry.pop("updated") <= time.time() + 2  # clocks of file systems are coarse
    assert entry == {
        "id": "a", "kind": "run", "status": "finished", "scenario": "quick", "policy": "greedy", "seed": 0, "done": 3,
        "total": 3, "message": "", "resumable": True, "stoppable": False,
        "numbers": {"accuracy": pytest.approx(0.3), "loss": pytest.approx(2 / 3), "epsilon_max": "infinite"},
    }  # fmt: skip
    details = client.get("/api/entry?id=a").json()
    assert details["scenario"]["network"]["users"] == 12
    assert details["files"] == ["scenario.toml"]
    (path / "checkpoint.safetensors").unlink()
    assert one(folder)["resumable"] is False


@pytest.mark.parametrize(
    ("status", "seen"), [("interrupted", "interrupted"), ("failed", "failed"), (None, "interrupted")]
)
def test_how_a_run_ended(folder: Path, status: str | None, seen: str) -> None:
    write_run(folder, "a", rounds=2, status=status, message="disk full" if status == "failed" else "")
    entry = one(folder)
    assert (entry["status"], entry["done"], entry["total"]) == (seen, 2, 3)
    assert entry["message"] == ("disk full" if seen == "failed" else "")


def test_a_job_that_never_began_says_why(folder: Path) -> None:
    (folder / "a").mkdir()
    output = folder / "a" / OUTPUT
    output.write_text("")
    assert (one(folder)["status"], one(folder)["resumable"]) == ("interrupted", False)
    output.write_text("Traceback ...\n\nKeyboardInterrupt\n")
    assert one(folder)["status"] == "interrupted"
    output.write_text("noise\nError: data set 'cifar10' is not in x;\n run covey data fetch cifar10\n")
    entry = one(folder)
    assert entry["status"] == "failed"
    assert entry["message"] == "data set 'cifar10' is not in x; run covey data fetch cifar10"


def test_an_error_of_a_resumed_job_is_shown(folder: Path) -> None:
    path = write_run(folder, "a", status="interrupted")
    (path / OUTPUT).write_text("Error: 'a' holds a run with another version\n")
    entry = one(folder)
    assert (entry["status"], entry["message"]) == ("failed", "'a' holds a run with another version")


def test_a_real_run_is_read_the_same_with_and_without_progress(with_real_run: Path) -> None:
    catalogue = Catalogue(Folder(with_real_run))
    path = with_real_run / "real"
    first = catalogue.entry("real")
    rows = Tables().table(path).rows
    assert (first.status, first.done, first.total, len(rows)) == ("finished", 2, 2, 2)
    (path / PROGRESS).unlink()
    from_summary = catalogue.entry("real")
    assert from_summary.numbers.keys() <= first.numbers.keys()
    assert from_summary.numbers["accuracy"] == first.numbers["accuracy"]
    assert Tables().table(path).rows == rows
    (path / "summary.json").unlink()
    from_checkpoint = catalogue.entry("real")
    for entry in (from_summary, from_checkpoint):
        for name in ("status", "done", "total", "policy", "seed", "scenario", "kind"):
            assert getattr(entry, name) == getattr(first, name)
    (path / "checkpoint.safetensors").unlink()
    assert [row["loss"] for row in Tables().table(path).rows] == [row["loss"] for row in rows]


def test_trainings_without_progress(folder: Path) -> None:
    path = folder / "a"
    path.mkdir()
    (path / "learner.json").write_text(json.dumps({"epochs": 6}))
    (path / "metrics.csv").write_text("epoch,reward,guarded_reward\n1,-5.5,\n2,-4.5,-1.0\n")
    summary = {"scenario": "quick", "algorithm": "iql", "seed": 1, "epochs": 2, "last_epoch": {"reward": -4.5}}
    (path / "summary.json").write_text(json.dumps(summary))
    entry = one(folder)
    assert (entry["kind"], entry["policy"], entry["status"]) == ("training", "iql", "interrupted")
    assert (entry["done"], entry["total"], entry["numbers"]) == (2, 6, {"reward": -4.5})
    table = Tables().table(path)
    assert table.index == "epoch"
    assert table.rows[0] == {"epoch": 1, "reward": -5.5, "guarded_reward": None}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{", b"[1]\n", b'{"event": "row"}\n', b"[" * 100_000 + b"\n"])
@pytest.mark.parametrize("name", [PROGRESS, "summary.json", "scenario.toml", "learner.json", "metrics.csv"])
def test_damaged_files_break_nothing(folder: Path, client: Client, name: str, content: bytes) -> None:
    path = write_run(folder, "a")
    (path / name).write_bytes(content)
    assert [entry["id"] for entry in client.get("/api/entries").json()] == ["a"]
    for question in ("entry", "curves", "differences", "pictures"):
        assert client.get(f"/api/{question}?id=a").status_code in (200, 422)


def test_changes_are_seen_and_vanished_entries_forgotten(folder: Path) -> None:
    catalogue = Catalogue(Folder(folder))
    path = write_run(folder, "a", rounds=1, status=None)
    assert catalogue.entries()[0].done == 1
    with (path / PROGRESS).open("a") as file:
        file.write(json.dumps({"event": "row", "row": {"round": 2, "loss": 1}, "done": 2, "total": 3}) + "\n")
        file.write('{"event": "row", "ro')  # being written
    assert catalogue.entries()[0].done == 2
    assert catalogue.entries()[0].numbers == {"loss": 1}
    shutil.rmtree(path)
    assert catalogue.entries() == []
    with pytest.raises(NotFoundError):
        catalogue.entry("a")


def test_the_last_changed_come_first(folder: Path) -> None:
    for index, name in enumerate("cab"):
        for file in write_run(folder, name).iterdir():
            os.utime(file, (1000 + index, 1000 + index))
    assert [entry.id for entry in Catalogue(Folder(folder)).entries()] == ["b", "a", "c"]


def test_rows_grow_and_are_taken_back_when_a_training_goes_on_from_its_checkpoint(folder: Path) -> None:
    tables = Tables()
    with Progress(folder) as progress:
        progress.start({"kind": "training"}, done=0, total=5, resume=False)
        for epoch in (1, 2, 3):
            progress.row({"epoch": epoch, "reward": -epoch}, epoch)
        before = tables.table(folder)
        assert [row["reward"] for row in before.rows] == [-1, -2, -3]
    assert tables.table(folder).version == before.version
    with Progress(folder) as progress:
        progress.start({"kind": "training"}, done=2, total=5, resume=True)
        progress.row({"epoch": 3, "reward": -30}, 3)
    after = tables.table(folder)
    assert after.version > before.version
    assert [row["reward"] for row in after.rows] == [-1, -2, -30]
    with Progress(folder) as progress:
        progress.start({"kind": "training"}, done=0, total=5, resume=False)
    assert tables.table(folder).rows == []


def test_a_hundred_runs_are_listed_quickly(folder: Path) -> None:
    """The time is printed, not judged."""
    for index in range(100):
        write_run(folder, f"group{index % 7}/run{index}", rounds=50)
    catalogue = Catalogue(Folder(folder))
    times = []
    for _ in range(2):
        started = time.process_time()
        assert len(catalogue.entries()) == 100
        times.append(1e3 * (time.process_time() - started))
    print(f"\n100 runs of 50 rounds listed in {times[0]:.0f} ms of processor time, again in {times[1]:.0f} ms")
