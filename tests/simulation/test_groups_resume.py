"""Runs with a start from uploads and with offers: resumed, with workers and deployed, they are the same run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.deploy.near import NearCourier, deployed, make_devices, run_folder, small

from covey.scenario import Scenario, load_scenario
from covey.simulation import Simulation, simulate
from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint, write_results

#: Each with a round in which a model is offered after the second; see the assertions.
CASES = {
    "start and evidence": (["clustering.start=release"], 1004),
    "a start of three rounds": (["network.tasks=8", "clustering.start=release"], 1000),
    "growth": (["network.tasks=2", "clustering.max_tasks=8"], 1001),
    "copies": (["security.mode=blind"], 1002),
}
ROUNDS = 9


def scenario_of(name: str) -> tuple[Scenario, int]:
    overrides, seed = CASES[name]
    return load_scenario("quick", ["clustering.rescue=true", *overrides, f"training.rounds={ROUNDS}"]), seed


def files(run: Simulation, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    write_results(run.history, folder, {})
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".csv", ".npz", ".json")}


def finish(run: Simulation) -> Simulation:
    while not run.done:
        run.play()
    return run


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stop", [1, 2, 4])
def test_a_resumed_run_has_the_same_bytes(name: str, stop: int, tmp_path: Path) -> None:
    scenario, seed = scenario_of(name)
    with Simulation(scenario, seed=seed) as whole:
        expected = files(finish(whole), tmp_path / "whole")
    offered = whole.history.column("offered_task")
    assert (offered[2:] >= 0).any(), "a model is offered after the run was stopped"
    with Simulation(scenario, seed=seed) as first:
        for _ in range(stop):
            first.play()
        save_checkpoint(first, tmp_path)
    with Simulation(scenario, seed=seed) as second:
        restore_checkpoint(second, tmp_path)
        assert sorted(second.state.memory) == sorted(first.state.memory)
        for key, array in first.state.memory.items():
            assert second.state.memory[key].dtype == array.dtype
            np.testing.assert_array_equal(second.state.memory[key], array)
        found = files(finish(second), tmp_path / "resumed")
    assert "rounds.csv" in found
    assert found == expected
    assert second.state.models.tobytes() == whole.state.models.tobytes()
    assert second.state.ledger.to_dict() == whole.state.ledger.to_dict()


@pytest.mark.parametrize("name", ["start and evidence", "copies"])
def test_two_workers_compute_the_same_bits(name: str, tmp_path: Path) -> None:
    scenario, seed = scenario_of(name)
    found = []
    for workers in (1, 2):
        with Simulation(scenario, seed=seed, workers=workers) as run:
            found.append(files(finish(run), tmp_path / str(workers)))
            found[-1]["weights"] = run.state.models.tobytes()
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("overrides", "seed"),
    [
        (["clustering.start=release"], 3),
        (["network.tasks=4", "clustering.start=release"], 3),
        (["network.tasks=4", "clustering.start=random"], 4),
        (["network.tasks=2", "clustering.max_tasks=4"], 4),
        (["security.mode=masked", "network.tasks=4"], 4),
    ],
    ids=lambda given: (" ".join(given) or "plain") if isinstance(given, list) else str(given),
)
def test_devices_begin_and_are_offered_models_as_in_the_simulator(
    overrides: list[str], seed: int, tmp_path: Path
) -> None:
    """Long enough for a second offer; under masks the simulator must not use tasks that stations do not see."""
    scenario, rounds = small("clustering.rescue=true", *overrides), 9
    devices = make_devices(scenario, seed, tmp_path / "site", metrics=True)
    groups = str(tmp_path / "site" / "server" / "groups.csv")
    found = deployed(
        NearCourier(devices), run_folder(scenario, tmp_path / "run", seed=seed, rounds=rounds, groups=groups)
    ).history
    expected = simulate(scenario, rounds=rounds, seed=seed)
    np.testing.assert_allclose(found.models, expected.models, atol=1e-6)
    for name in ("starting", "groups_estimate", "groups_confirmed"):
        np.testing.assert_array_equal(found.column(name), expected.column(name))
    for name in ("offered_task", "offered_source", "offered_users", "offered_reason"):
        np.testing.assert_array_equal(found.column(name), expected.column(name))
    np.testing.assert_array_equal(found.ledger.rho, expected.ledger.rho)
    if "network.tasks=4" in overrides:
        assert (found.column("offered_task") >= 0).any()
    if scenario.security.mode == "none":
        assert found.models.tobytes() == expected.models.tobytes()
        np.testing.assert_array_equal(found.user_column("identity"), expected.user_column("identity"))
