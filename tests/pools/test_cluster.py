"""A real Ray cluster on this machine: the same results as without it, also when workers or the command are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.errors import CoveyError, ScenarioError
from covey.figures.cells import policy_file
from covey.figures.kinds import Partitioned, Played, Training
from covey.figures.work import Store, finish
from covey.pools import Pool, cluster, open_pool, results

ray = pytest.importorskip("ray", reason="Ray is not installed here; `make test-ray` installs it and runs this")

TRAINED = Training("quick", settings=(("algorithm", "iql"), ("epochs", 1)))
CELLS = [*(Partitioned("quick", seed=seed) for seed in range(2)), Played("quick", policy=TRAINED, layouts=2)]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with open_pool(2, "local") as pool:
        yield pool


def one(pool: Pool, function: Any, *arguments: Any) -> Any:
    pieces = iter([("it", function, arguments)])
    return dict(results(pool, lambda: next(pieces, None)))["it"]


def die_once(marker: str) -> int:
    if not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise ScenarioError("no such thing")


def test_it_has_as_many_processors_as_asked_for(pool: Pool) -> None:
    assert pool.size == 2


def test_a_worker_that_is_killed_is_replaced(pool: Pool, tmp_path: Path) -> None:
    assert one(pool, die_once, str(tmp_path / "killed")) != os.getpid()
    assert (tmp_path / "killed").exists()


def test_work_that_kills_every_worker_is_one_sentence(pool: Pool) -> None:
    with pytest.raises(CoveyError, match=r"lost a piece of work for good \(WorkerCrashedError, begun 4 times\)"):
        one(pool, die)


def test_an_error_that_a_user_can_act_on_arrives_as_it_is(pool: Pool) -> None:
    with pytest.raises(ScenarioError, match=r"^no such thing$"):
        one(pool, fail)


def test_another_version_on_a_machine_is_refused(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cluster._software()
    monkeypatch.setattr(cluster, "_software", lambda: here | {"numpy": "0.1"})
    with pytest.raises(CoveyError, match=f"has numpy {here['numpy']} instead of 0.1; install the same there"):
        one(pool, die_once, "never")


def test_no_cluster_there_is_one_sentence(tmp_path: Path) -> None:
    ended = covey("figures", "2", "--ray", "127.0.0.1:1", "--out", "figures", cwd=tmp_path)
    assert ended.returncode == 2
    assert "there is no Ray cluster at '127.0.0.1:1'" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_a_command_that_is_killed_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    arguments = ["figures", "2", "6", "7", "--seeds", "2", "--processes", "2", "--quiet", "--out"]
    begun = subprocess.Popen([sys.executable, "-m", "covey", *arguments, "ray", "--ray", "local"], cwd=tmp_path)
    cells = tmp_path / "ray" / "cells"
    deadline = time.monotonic() + 300
    while len(list(cells.rglob("*.json"))) < 3:
        assert begun.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline, "nothing was computed for minutes"
        time.sleep(0.1)
    begun.kill()
    begun.wait()
    before = {path: path.stat().st_mtime_ns for path in cells.rglob("*.json")}
    assert covey(*arguments, "ray", "--ray", "local", cwd=tmp_path).returncode == 0
    assert covey(*arguments, "here", cwd=tmp_path).returncode == 0
    assert before.items() <= {path: path.stat().st_mtime_ns for path in cells.rglob("*.json")}.items()
    for path in (tmp_path / "here").glob("*.csv"):
        if path.name != "figure_6.csv":  # its times are measured
            assert path.read_bytes() == (tmp_path / "ray" / path.name).read_bytes()


def test_cells_and_policies_are_those_of_processes(tmp_path: Path) -> None:
    for name, address in (("here", None), ("ray", "auto")):
        finish(lambda _: [*CELLS], Store(tmp_path / name), 2, ray=address)
    for cell in [*CELLS, TRAINED]:
        assert Store(tmp_path / "ray")[cell] == Store(tmp_path / "here")[cell]
    assert policy_file(tmp_path / "ray", TRAINED).read_bytes() == policy_file(tmp_path / "here", TRAINED).read_bytes()


def covey(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "covey", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
