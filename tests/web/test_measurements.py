"""Numbers on the page about the dashboard are those of the measurement."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dashboard_benchmark", ROOT / "benchmarks/dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_what_was_measured(script: ModuleType) -> None:
    report = json.loads((ROOT / "benchmarks/dashboard.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/dashboard.md").read_text(encoding="utf-8")
    assert script.table(report) in page
    machine = report["machine"]
    assert f"{machine['cores']} cores" in page
    assert f"load average of {machine['load_average_before']:.1f} to {machine['load_average_after']:.1f}" in page


def test_a_hundred_runs_are_shown_within_two_seconds() -> None:
    results = json.loads((ROOT / "benchmarks/dashboard.json").read_text(encoding="utf-8"))["results"]
    assert results["pages_ms"]["list_of_100_runs"]["median"] < 2000
    assert results["server"]["playground_5_policies_ms"]["processor"] < 100
