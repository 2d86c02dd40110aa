"""The file that others watch: its lines, its lock, and how it ends."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.processes import started, until

from covey.errors import OutputError, PolicyError
from covey.simulation.progress import PROGRESS, Progress, worker_of

ABOUT = {"kind": "run", "scenario": "quick", "policy": "greedy", "seed": 0}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / PROGRESS).read_text().splitlines()]


def test_rows_and_end_are_written_as_they_come(tmp_path: Path) -> None:
    with Progress(tmp_path) as progress:
        progress.start(ABOUT, done=0, total=2, resume=False)
        progress.row({"round": 1, "loss": 2.5, "epsilon_max": math.inf, "empty": math.nan}, 1)
        assert len(lines(tmp_path)) == 2
    started, row, ended = lines(tmp_path)
    assert started.items() >= {"event": "started", **ABOUT, "done": 0, "total": 2, "process": os.getpid()}.items()
    assert row["row"] == {"round": 1, "loss": 2.5, "epsilon_max": "infinite", "empty": None}
    assert ended.items() >= {"event": "ended", "status": "finished", "message": "", "done": 1, "total": 2}.items()


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), "interrupted", ""),
        (PolicyError("no such policy"), "failed", "no such policy"),
        (ZeroDivisionError("zero"), "failed", "ZeroDivisionError: zero"),
    ],
)
def test_an_error_is_the_end(tmp_path: Path, error: BaseException, status: str, message: str) -> None:
    def work() -> None:
        with Progress(tmp_path) as progress:
            progress.start(ABOUT, done=0, total=2, resume=False)
            raise error

    with pytest.raises(type(error)):
        work()
    assert lines(tmp_path)[-1].items() >= {"status": status, "message": message}.items()


def test_nothing_is_written_before_the_start(tmp_path: Path) -> None:
    with Progress(tmp_path / "nowhere"):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="start"), Progress(tmp_path) as progress:
        progress.row({}, 1)


def test_a_new_start_empties_the_file_and_a_resumed_one_keeps_it(tmp_path: Path) -> None:
    for resume in (False, True, False):
        with Progress(tmp_path) as progress:
            if resume:
                with (tmp_path / PROGRESS).open("a") as file:
                    file.write('{"cut')  # as a crash leaves it
                progress.claim()
            progress.start(ABOUT, done=1, total=2, resume=resume)
        text = (tmp_path / PROGRESS).read_text().splitlines()
        assert len(text) == (5 if resume else 2)
        assert json.loads(text[-1])["status"] == "finished"


HOLD = (
    "import sys, time; from pathlib import Path; from covey.simulation.progress import Progress\n"
    "with Progress(Path(sys.argv[1])) as p:\n"
    "    p.start({}, done=0, total=1, resume=False); print('ready', flush=True); time.sleep(3600)\n"
)


def test_the_lock_tells_who_works_keeps_others_out_and_ends_with_the_process(tmp_path: Path) -> None:
    assert worker_of(tmp_path) is None
    with started([sys.executable, "-c", HOLD, str(tmp_path)]) as process:
        assert process.line() == "ready"
        assert worker_of(tmp_path) == process.pid
        with pytest.raises(OutputError, match="another covey process"), Progress(tmp_path) as progress:
            progress.start(ABOUT, done=0, total=1, resume=False)
        assert len(lines(tmp_path)) == 1
        process.send(signal.SIGKILL)
        process.exit_code()
        until(lambda: worker_of(tmp_path) is None)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"), Progress(tmp_path / "file") as progress:
        progress.start(ABOUT, done=0, total=1, resume=False)
