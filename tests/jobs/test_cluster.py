"""A real Ray cluster on this machine: the same results as without it, also when workers or the command are killed."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.processes import Ended, family, run, started

from covey.errors import CoveyError, ScenarioError
from covey.figures.cells import cells_in, policy_file
from covey.figures.compute import finish
from covey.figures.kinds import Partitioned, Played, Training
from covey.jobs import Pool, cluster, in_order, open_pool, results

# Read when Ray is imported: the cluster of these tests is for them alone.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
pytest.importorskip("ray", reason="Ray is not installed here; `make test-ray` installs it and runs this")

pytestmark = pytest.mark.timeout(2400)
TRAINED = Training("quick", settings=(("algorithm", "iql"), ("epochs", 1)))
CELLS = [*(Partitioned("quick", seed=seed) for seed in range(2)), Played("quick", policy=TRAINED, layouts=2)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster that was there before, on its own port; its workers must find the functions of this file."""
    port = 26379
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", f"--port={port}", "--num-cpus=2"]
    command += ["--include-dashboard=false", "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
    paths = os.pathsep.join(
        [str(Path(__file__).parent), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    )
    with family():  # `ray start` leaves processes that outlive it
        with started(command, env=os.environ | {"PYTHONPATH": paths}, alone=True) as begun:
            assert begun.exit_code() == 0, begun.stderr
        try:
            yield f"127.0.0.1:{port}"
        finally:
            assert run([command[0], "stop", "--force"]).returncode == 0


@pytest.fixture
def pool(address: str) -> Iterator[Pool]:
    with open_pool(2, address) as pool:
        yield pool


def one(pool: Pool, function: Callable[..., Any], *arguments: Any) -> Any:
    return dict(results(pool, in_order([("it", function, arguments)])))["it"]


def die_once(marker: str) -> int:
    if not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(kind: type[Exception]) -> None:
    raise kind("no such thing")


def test_it_has_the_processors_of_the_cluster(pool: Pool) -> None:
    assert pool.size == 2


def test_a_worker_that_is_killed_is_replaced(pool: Pool, tmp_path: Path) -> None:
    assert one(pool, die_once, str(tmp_path / "killed")) != os.getpid()
    assert (tmp_path / "killed").exists()


def test_work_that_kills_every_worker_is_one_sentence(pool: Pool) -> None:
    with pytest.raises(CoveyError, match=r"a job failed on the cluster \(WorkerCrashedError, after 4 attempts\)"):
        one(pool, die)


@pytest.mark.parametrize("kind", [ScenarioError, ValueError])
def test_an_error_arrives_as_it_is(pool: Pool, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^no such thing$"):
        one(pool, fail, kind)


def test_another_version_on_a_machine_is_refused(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cluster._software()
    monkeypatch.setattr(cluster, "_software", lambda: here | {"numpy": "0.1"})
    with pytest.raises(CoveyError, match=f"has numpy {here['numpy']} instead of 0.1; install the same there"):
        one(pool, die_once, "never")


def test_the_command_still_decides_what_ends_it(pool: Pool) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_cells_and_policies_are_those_of_processes(address: str, tmp_path: Path) -> None:
    for name, where in (("here", None), ("ray", address)):
        finish(lambda _: [*CELLS], cells_in(tmp_path / name), 2, ray=where)
    for cell in [*CELLS, TRAINED]:
        here, there = ({**cells_in(tmp_path / name)[cell]} for name in ("here", "ray"))
        assert {name for name in here if here[name] != there[name]} <= {"decision_ms"}  # it is measured
    assert policy_file(tmp_path / "ray", TRAINED).read_bytes() == policy_file(tmp_path / "here", TRAINED).read_bytes()


def test_sweep_and_evaluation_are_those_of_processes(address: str, tmp_path: Path) -> None:
    for name, where in (("here", []), ("ray", ["--ray", address])):
        swept = ["sweep", "quick", "--vary", "algorithm=dpvd,iql", "--seeds", "1", "--learner", "epochs=1", "--quiet"]
        assert covey(*swept, "--out", name, *where, cwd=tmp_path).returncode == 0
        policy = f"{name}/algorithm=dpvd-seed0/policy.safetensors"
        judged = ["evaluate", policy, "quick", "--layouts", "2", "--against", "greedy", "--quiet", "--out"]
        assert covey(*judged, f"{name}/judged", *where, cwd=tmp_path).returncode == 0
    for path in ("sweep.csv", "algorithm=dpvd-seed0/policy.safetensors", "judged/comparison.csv"):
        assert (tmp_path / "here" / path).read_bytes() == (tmp_path / "ray" / path).read_bytes()


def test_a_cluster_that_asks_for_a_token_is_one_sentence(address: str, tmp_path: Path) -> None:
    wrong = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    ended = covey("figures", "2", "--ray", address, "--out", "figures", cwd=tmp_path, **wrong)
    assert ended.returncode == 2
    assert "RAY_AUTH_TOKEN" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_no_cluster_there_is_one_sentence(tmp_path: Path) -> None:
    ended = covey("figures", "2", "--ray", "127.0.0.1:1", "--out", "figures", cwd=tmp_path)
    assert ended.returncode == 2
    assert "there is no Ray cluster at '127.0.0.1:1'" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_a_command_that_is_killed_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    arguments = ["figures", "2", "6", "7", "--seeds", "2", "--processes", "2", "--quiet", "--out"]
    cells = tmp_path / "ray" / "cells.jsonl"
    with started([sys.executable, "-m", "covey", *arguments, "ray", "--ray", "local"], cwd=tmp_path) as begun:
        begun.wait_until(lambda: cells.is_file() and cells.read_bytes().count(b"\n") >= 3)
        begun.send(signal.SIGKILL)
        begun.exit_code()
    before = cells.read_bytes()
    assert covey(*arguments, "ray", "--ray", "local", cwd=tmp_path).returncode == 0
    assert covey(*arguments, "here", cwd=tmp_path).returncode == 0
    assert cells.read_bytes().startswith(before)
    for path in (tmp_path / "here").glob("*.csv"):
        if path.name != "figure_6.csv":  # its times are measured
            assert path.read_bytes() == (tmp_path / "ray" / path.name).read_bytes()


def covey(*arguments: str, cwd: Path, **environment: str) -> Ended:
    command = [sys.executable, "-m", "covey", *arguments]
    return run(command, cwd=cwd, env=os.environ | environment, limit_s=600)
