from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from covey.report import write_report
from covey.simulation import History

VERSIONS = {"covey": "0.1.0"}


def test_all_files_are_written_through_the_given_writer(history: History, tmp_path: Path) -> None:
    written: dict[Path, bytes] = {}
    paths = write_report(history, tmp_path, VERSIONS, written.__setitem__)
    assert [path.name for path in paths] == ["map.png", "curves.png", "blocks.png", "report.html"]
    assert list(written) == paths
    assert list(tmp_path.iterdir()) == []
    assert all(written[path].startswith(b"\x89PNG") for path in paths[:3])
    assert written[paths[3]].decode("utf-8").startswith("<!DOCTYPE html>")


def test_plain_files_without_a_writer(make_history: Callable[..., History], tmp_path: Path) -> None:
    for path in write_report(make_history(played=0), tmp_path, VERSIONS):
        assert path.stat().st_size > 500
