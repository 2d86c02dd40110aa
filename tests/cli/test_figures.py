"""Figures as a user meets them: files, claims, resuming, errors."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread
from tests.cli.conftest import environment
from tests.processes import started

from covey.cli.main import main
from covey.figures import FIGURE_NAMES
from covey.figures.cells import cells_in
from covey.figures.plans import FIGURES, plan_of
from covey.figures.scales import SCALES

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


def test_every_figure_that_help_names_has_a_plan() -> None:
    assert tuple(FIGURES) == FIGURE_NAMES


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
    assert [one["cells"] for one in about["figures"]["6"]["made_with"]] == [12]
    assert about["figures"]["6"]["made_with"][0]["versions"]["covey"]
    # Another figure later: the first ones stay, and nothing is computed again.
    before = (tmp_path / "cells.jsonl").read_bytes()
    code, out, _ = ask("6", "--seeds", 1, "--processes", 1, "--out", tmp_path, "--json")
    assert code == 0
    assert {claim["figure"] for claim in json.loads(out)["claims"]} == {"2", "6"}
    assert (tmp_path / "cells.jsonl").read_bytes() == before


def test_only_drawing_computes_nothing(ask: Ask, tmp_path: Path) -> None:
    code, out, _ = ask("all", "--only-draw", "--out", tmp_path)
    assert code == 0
    assert "not testable" in out
    assert not (tmp_path / "cells.jsonl").exists()
    assert len(list(tmp_path.glob("figure_*.png"))) == 14


def test_published_results_without_their_cells_are_drawn_again_from_their_data(ask: Ask, tmp_path: Path) -> None:
    assert ask("2", "--processes", 1, "--out", tmp_path)[0] == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "cells.jsonl"}
    (tmp_path / "cells.jsonl").unlink()
    (tmp_path / "figure_2.png").unlink()
    assert ask("2", "--only-draw", "--out", tmp_path)[0] == 0
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_experiments_of_another_version_are_reused_only_when_told_and_counted(ask: Ask, tmp_path: Path) -> None:
    assert ask("2", "--processes", 1, "--out", tmp_path)[0] == 0
    (record,) = cells_in(tmp_path).records()
    old = replace(record, versions=record.versions | {"covey": "0.0.9"})
    cells = tmp_path / "cells.jsonl"
    cells.write_bytes(old.to_line())
    code, _, err = ask("2", "--any-version", "--processes", 1, "--out", tmp_path)
    assert code == 0
    assert "1 experiments were computed by other versions" in " ".join(err.split())
    assert cells.read_bytes() == old.to_line()
    about = json.loads((tmp_path / "about.json").read_text(encoding="utf-8"))
    assert about["figures"]["2"]["made_with"] == [{"cells": 1, "versions": dict(old.versions)}]
    code, _, err = ask("2", "--processes", 1, "--out", tmp_path)
    assert code == 0
    assert "other versions" not in err
    assert cells.read_bytes().count(b"\n") == 2
    about = json.loads((tmp_path / "about.json").read_text(encoding="utf-8"))
    assert about["figures"]["2"]["made_with"] == [{"cells": 1, "versions": dict(record.versions)}]


def finished(folder: Path) -> int:
    """Experiments that are finished so far."""
    path = folder / "cells.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


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


def workers_of(process: int) -> list[int]:
    """The worker processes of a command; none where there is no /proc."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process and "spawn_main" in (folder / "cmdline").read_text():
                found.append(int(folder.name))
    return found


def test_a_lost_worker_is_replaced_and_an_interrupted_command_goes_on_where_it_stopped(
    ask: Ask, tmp_path: Path
) -> None:
    # More cells than can be computed before it is interrupted.
    command = [sys.executable, "-m", "covey", "figures", "7", "--seeds", "50", "--processes", "1", "--out", tmp_path]
    with started(command, env=environment()) as process:
        process.wait_until(lambda: finished(tmp_path))
        for worker in workers_of(process.pid):  # only Linux has /proc to find it in
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        before = finished(tmp_path)
        process.wait_until(lambda: finished(tmp_path) > before)
        process.send(signal.SIGINT)
        assert process.exit_code() == 130, process.stderr
        errors = process.stderr
    assert "Traceback" not in errors
    assert "Go on with: covey figures 7 --seeds 50" in " ".join(errors.split())
    kept = (tmp_path / "cells.jsonl").read_bytes()
    wanted = {cell.key for cell in plan_of(["7"], SCALES["quick"], 50)(cells_in(tmp_path))}
    assert before < kept.count(b"\n") < len(wanted)
    assert not (tmp_path / "claims.json").exists()
    # With fewer seeds there is less left to compute, and what is there is used all the same.
    wanted = {cell.key for cell in plan_of(["7"], SCALES["quick"], 1)(cells_in(tmp_path))}
    code, _, err = ask("7", "--seeds", 1, "--processes", 1, "--out", tmp_path)
    assert code == 0, err
    after = (tmp_path / "cells.jsonl").read_bytes()
    assert after.startswith(kept)
    keys, had = ([json.loads(line)["key"] for line in text.splitlines()] for text in (after, kept))
    assert sorted(keys) == sorted({*had} | wanted)
    assert (tmp_path / "figure_7.png").is_file()
    assert (tmp_path / "claims.json").is_file()
