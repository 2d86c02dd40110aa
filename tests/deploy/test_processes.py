"""Deployments of real processes: SuperLink, SuperNodes and ServerApp, and what happens when they are killed.

Limits are generous: every message starts a process, which takes seconds, and on a busy machine many.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.deploy.near import small
from tests.processes import family, until

import covey
from covey.deploy.certificates import make_certificates
from covey.deploy.demo import Site
from covey.deploy.device_state import DeviceState
from covey.deploy.folders import DeviceFolder
from covey.deploy.processes import Started
from covey.deploy.runs import follow, new_run
from covey.errors import DeployError

pytest.importorskip("flwr", reason="Flower is not installed; make test-deploy installs it and runs these tests")
pytestmark = pytest.mark.deploy

USERS, ROUNDS, PATIENCE_S, LIMIT_S = 3, 2, 90.0, 600.0
THREE = [f"network.users={USERS}", "security.minimum=2"]


def play(site: Site, started: Started, folder: Path, watch: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """Play a run of two rounds without metrics."""
    new_run(
        site.scenario, folder, seed=site.seed, policy="greedy", rounds=ROUNDS, patience_s=PATIENCE_S, wait_s=LIMIT_S
    )
    follow(started, folder, watch or (lambda said: None))
    return folder


def models(folder: Path) -> np.ndarray[Any, Any]:
    return load_file(folder / "models.safetensors")["models"]


def incidents(folder: Path) -> set[tuple[str, str]]:
    with open(folder / "incidents.csv", encoding="utf-8", newline="") as file:
        return {(row["user"], row["status"]) for row in csv.DictReader(file)}


def spent(site: Site, user: int) -> float:
    folder = DeviceFolder.open(site.device(user))
    return float(DeviceState(folder.private, folder.scenario.privacy, None).ledger.rho[0])


@pytest.fixture(scope="module")
def expected() -> covey.History:
    return covey.simulate(small(*THREE), rounds=ROUNDS, seed=0)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Started, str]]:
    """A SuperLink and three devices, for all tests that leave them as they were."""
    site = Site(tmp_path_factory.mktemp("site"), small(*THREE))
    site.make()
    with family(), site.processes() as started:
        address = site.start_superlink(started)
        for user in range(USERS):
            site.start_node(started, user, address)
        yield site, started, address


def test_models_equal_the_simulators(running: Any, expected: covey.History, tmp_path: Path) -> None:
    site, started, _ = running
    folder = play(site, started, tmp_path / "run")
    np.testing.assert_allclose(models(folder), expected.models, atol=1e-6)
    assert not incidents(folder)
    assert (folder / "report.html").is_file()
    for user in range(USERS):
        assert spent(site, user) == pytest.approx(expected.ledger.rho[user])


def test_a_killed_server_app_goes_on_from_its_checkpoint(running: Any, expected: covey.History, tmp_path: Path) -> None:
    site, started, _ = running
    before = [spent(site, user) for user in range(USERS)]

    def kill(said: dict[str, Any]) -> None:
        if said.get("round") == 1 and "joined" not in said:  # the second round has begun
            os.kill(int(said["pid"]), signal.SIGKILL)

    with pytest.raises(DeployError, match="covey deploy run --resume"):
        play(site, started, tmp_path / "run", kill)
    follow(started, tmp_path / "run", lambda said: None)
    np.testing.assert_allclose(models(tmp_path / "run"), expected.models, atol=1e-6)
    # Nothing was charged twice, though the killed round may have been asked for twice.
    for user in range(USERS):
        assert spent(site, user) - before[user] == pytest.approx(expected.ledger.rho[user])


def test_a_device_that_is_killed_in_a_round_is_missed_and_comes_back(running: Any, tmp_path: Path) -> None:
    site, started, address = running

    def kill(said: dict[str, Any]) -> None:
        if said.get("round") == 1 and "joined" not in said and "user-001" in started.processes:
            started.stop("user-001", signal.SIGKILL)

    folder = play(site, started, tmp_path / "run", kill)
    assert np.isfinite(models(folder)).all()
    assert ("1", "silent") in incidents(folder)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["complete"]
    assert summary["users"][1]["rho"] >= spent(site, 1) * (1 - 1e-9)
    site.start_node(started, 1, address)
    again = play(site, started, tmp_path / "again")
    assert np.isfinite(models(again)).all()
    # It was charged for what it may have sent, and now knows.
    charged = json.loads((again / "summary.json").read_text(encoding="utf-8"))["users"][1]["rho"]
    assert charged == pytest.approx(spent(site, 1))


def test_nan_is_turned_away_and_an_empty_budget_refuses(running: Any, tmp_path: Path) -> None:
    site, started, address = running
    for user in (1, 2):
        started.stop(f"user-{user:03d}")
    lying = Path(__file__).with_name("lying_node.py")
    started.start("user-001", [sys.executable, str(lying), str(site.device(1)), address])
    site.start_node(started, 2, address, "--budget-epsilon", "0.01")
    before = spent(site, 2)
    folder = play(site, started, tmp_path / "run")
    assert np.isfinite(models(folder)).all()
    with open(folder / "users.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["station"]) >= 0]
    assert {int(row["rejection"]) for row in rows if row["user"] == "1"} == {64}
    assert {row["joined"] for row in rows if row["user"] == "0"} == {"1"}
    assert ("2", "refused") in incidents(folder)
    assert spent(site, 2) == pytest.approx(before)


def test_masked_rounds_over_tls_with_known_nodes_only(tmp_path: Path) -> None:
    site = Site(tmp_path / "site", small(*THREE, "security.mode=masked"), tls=True)
    site.make()
    expected = covey.simulate(site.scenario, rounds=ROUNDS, seed=0)
    make_certificates(tmp_path / "others", ["127.0.0.1"], 1)
    with family(), site.processes() as started:
        address = site.start_superlink(started)
        for user in range(1, USERS):
            site.start_node(started, user, address)
        # User 0 trusts another authority than the server's: it never joins.
        command = [sys.executable, "-m", "covey", "deploy", "node", str(site.device(0)), "--superlink", address]
        own = ["--node-key", str(site.folder / "certificates" / "user-000.key")]
        started.start("wrong-authority", [*command, "--ca", str(tmp_path / "others" / "ca.crt"), *own])
        wait_for(started, "wrong-authority", "CERTIFICATE_VERIFY_FAILED")
        started.stop("wrong-authority")
        # Nor does it with a key that the server does not know.
        stranger = ["--node-key", str(tmp_path / "others" / "user-000.key")]
        authority = ["--ca", str(site.folder / "certificates" / "ca.crt")]
        process = started.start("wrong-key", [*command, *authority, *stranger])
        assert process.wait(LIMIT_S) != 0
        site.start_node(started, 0, address)
        folder = play(site, started, tmp_path / "run")
    np.testing.assert_allclose(models(folder), expected.models, atol=1e-6)
    with open(folder / "users.csv", encoding="utf-8", newline="") as file:
        assert {row["identity"] for row in csv.DictReader(file) if row["round"] == "2"} == {"-1"}


def wait_for(started: Started, name: str, words: str) -> None:
    """Wait until a process has said something."""

    def said() -> str:
        return started.log(name).read_text(encoding="utf-8", errors="replace")

    until(lambda: words in said(), LIMIT_S, lambda: said()[-2000:])
