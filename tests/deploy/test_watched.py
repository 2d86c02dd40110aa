"""What others see of a run with devices: lines of progress, an entry of the dashboard, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.deploy.near import NearCourier, deployed, make_devices, run_folder, small

from covey.cli.main import main
from covey.dashboard.catalogue import Catalogue
from covey.dashboard.runs_folder import Folder
from covey.errors import EXIT_CODES, ResumeError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four rounds without metrics and groups."""
    root = tmp_path_factory.mktemp("watched")
    scenario = small()
    devices = make_devices(scenario, 0, root / "site")
    run = run_folder(scenario, root / "runs" / "devices", metrics=False)
    deployed(NearCourier(devices), run)
    return run


def test_every_round_is_a_line_of_progress(folder: Path) -> None:
    events = [json.loads(line) for line in (folder / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [event["event"] for event in events] == ["started", *["row"] * 4, "ended"]
    assert [event["done"] for event in events] == [0, 1, 2, 3, 4, 4]
    assert events[0]["total"] == 4
    assert events[-1]["status"] == "finished"


def test_the_dashboard_lists_it_and_does_not_offer_to_simulate_the_rest(folder: Path) -> None:
    (entry,) = Catalogue(Folder(folder.parent)).entries()
    assert (entry.kind, entry.status, entry.done, entry.total) == ("run", "finished", 4, 4)
    assert (entry.policy, entry.resumable) == ("greedy", False)
    assert "loss" not in entry.numbers, "nobody asked devices for losses"


def test_covey_run_does_not_go_on_without_the_devices(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "checkpoint.safetensors").read_bytes()
    with pytest.raises(SystemExit) as end:
        main(["run", "--resume", "--rounds", "5", "--out", str(folder)])
    assert end.value.code == ResumeError.exit_code
    assert end.value.code in EXIT_CODES
    assert "covey deploy run --resume --out" in " ".join(capsys.readouterr().err.split())
    assert (folder / "checkpoint.safetensors").read_bytes() == before
