from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Covey


def test_one_measurement_as_json_and_file(covey: Covey, tmp_path: Path) -> None:
    result = covey("bench", "--only", "blocks", "--scale", "quick", "--json", "--out", "b.json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report == json.loads((tmp_path / "b.json").read_text())
    assert set(report["results"]) == {"blocks"}
    assert report["left_out"] == {}


def test_wrong_names_are_refused(covey: Covey, tmp_path: Path) -> None:
    assert "choose from round" in covey("bench", "--only", "speed", cwd=tmp_path).stderr
    assert covey("bench", "--scale", "huge", cwd=tmp_path).returncode == 2
