"""Figures as a user meets them: files, claims, resuming, errors."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.image import imread

from covey.cli.main import main
from covey.figures.plans import plan_of
from covey.figures.scales import SCALES
from covey.figures.work import Store

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Exit code, standard output and standard error of `covey figures` with these arguments."""
    monkeypatch.setenv("COLUMNS", "140")

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["covey", "figures", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main(["figures", *map(str, arguments)])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def test_pictures_data_claims_and_how_they_were_made(ask: Ask, tmp_path: Path) -> None:
    code, out, _ = ask("2", "6", "--seeds", 2, "--processes", 1, "--out", tmp_path)
    assert code == 0
    assert "verdict" in out
    for name in ("2", "6"):
        assert imread(tmp_path / f"figure_{name}.png").shape[1] > 600
        with open(tmp_path / f"figure_{name}.csv", encoding="utf-8") as file:
            assert len(list(csv.DictReader(file))) >= 12
    claims = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert {claim["figure"] for claim in claims["claims"]} == {"2", "6"}
    about = json.loads((tmp_path / "about.json").read_text(encoding="utf-8"))
    assert about["scale"] == "quick"
    assert about["figures"]["6"]["command"].startswith("covey figures 2 6 --seeds 2")
    assert about["figures"]["6"]["missing_cells"] == 0
    assert about["figures"]["6"]["cells"] == 12
    assert about["versions"]["covey"]
    # Another figure later: the first ones stay, and nothing is computed again.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/**/*.json")}
    code, out, _ = ask("6", "--seeds", 1, "--processes", 1, "--out", tmp_path, "--json")
    assert code == 0
    assert {claim["figure"] for claim in json.loads(out)["claims"]} == {"2", "6"}
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/**/*.json")}


def test_only_drawing_computes_nothing(ask: Ask, tmp_path: Path) -> None:
    code, out, _ = ask("all", "--only-draw", "--out", tmp_path)
    assert code == 0
    assert "not testable" in out
    assert not list(tmp_path.glob("cells/**/*.json"))
    assert len(list(tmp_path.glob("figure_*.png"))) == 14


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["11"], "there is no figure '11'; figures are 2, 3,"),
        (["2", "--scale", "huge"], "--scale is 'huge'; it is one of quick, full"),
    ],
)
def test_wrong_input_gets_one_sentence(ask: Ask, tmp_path: Path, arguments: list[str], words: str) -> None:
    code, _, err = ask(*arguments, "--out", tmp_path)
    assert code == 2
    assert words in " ".join(err.split())


def test_a_folder_of_another_scale_is_left_alone(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "about.json").write_text('{"scale": "full"}', encoding="utf-8")
    code, _, err = ask("2", "--out", tmp_path)
    assert code == 4
    assert "holds figures of scale full; choose another folder" in " ".join(err.split())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the worker in /proc, which only Linux has")
def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "covey",
        "figures",
        "7",
        "--seeds",
        "2",
        "--processes",
        "1",
        "--out",
        str(tmp_path),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 240
    while not list(tmp_path.glob("cells/run/*.json")) and time.monotonic() < until:
        time.sleep(0.05)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process.pid and "spawn_main" in (folder / "cmdline").read_text():
                os.kill(int(folder.name), signal.SIGKILL)
    before = len(list(tmp_path.glob("cells/run/*.json")))
    assert before > 0
    while len(list(tmp_path.glob("cells/run/*.json"))) == before and time.monotonic() < until:
        assert process.poll() is None, "it ended with its worker"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert len(list(tmp_path.glob("cells/run/*.json"))) > before


def test_an_interrupted_command_goes_on_where_it_stopped(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "covey",
        "figures",
        "7",
        "--seeds",
        "2",
        "--processes",
        "1",
        "--out",
        str(tmp_path),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 240
    while not list(tmp_path.glob("cells/run/*.json")) and time.monotonic() < until:
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130, err
    assert "Go on with: covey figures 7 --seeds 2" in " ".join(err.split())
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/run/*.json")}
    wanted = {cell.key for cell in plan_of(["7"], SCALES["quick"], 2)(Store(tmp_path))}
    assert 1 <= len(kept) < len(wanted)
    assert not (tmp_path / "claims.json").exists()
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    assert len(list(tmp_path.glob("cells/run/*.json"))) == len(wanted)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    assert (tmp_path / "figure_7.png").is_file()
