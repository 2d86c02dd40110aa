"""Sizes and times that pages state are those that were measured."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def measured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"benchmarks/{name}.json").read_text(encoding="utf-8"))
    return found


def test_the_page_on_commands_says_how_large_reports_are() -> None:
    sentence = runpy.run_path(str(ROOT / "benchmarks/report_size.py"))["sentence"]
    page = " ".join((ROOT / "docs/commands.md").read_text(encoding="utf-8").split())
    assert sentence(measured("report_size")) in page, "run benchmarks/report_size.py and copy the sentence it prints"


def test_a_thousand_users_fit_into_a_few_megabytes_and_move_fluently() -> None:
    large = measured("report_size")["pages"]["large"]
    assert large["users"] == 1000
    assert large["bytes"] < 3_000_000
    assert large["move_ms"] < 100


def test_the_page_on_the_dashboard_says_how_fast_it_is() -> None:
    table, report = runpy.run_path(str(ROOT / "benchmarks/dashboard.py"))["table"], measured("dashboard")
    page = (ROOT / "docs/dashboard.md").read_text(encoding="utf-8")
    assert table(report) in page
    machine = report["machine"]
    assert f"{machine['cores']} cores" in page
    assert f"load average of {machine['load_average_before']:.1f} to {machine['load_average_after']:.1f}" in page


def test_a_hundred_runs_are_shown_within_two_seconds() -> None:
    results = measured("dashboard")["results"]
    assert results["pages_ms"]["list_of_100_runs"]["median"] < 2000
    assert results["server"]["playground_5_policies_ms"]["processor"] < 100


def test_the_page_on_peers_is_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/peers"))
    render = runpy.run_path(str(ROOT / "benchmarks/peers/page.py"))["render"]
    remarks = (ROOT / "benchmarks/peers/remarks.md").read_text(encoding="utf-8")
    page = render(measured("peers"), measured("growth")["results"], remarks)
    assert (ROOT / "docs/peers.md").read_text(encoding="utf-8") == page, "run python benchmarks/peers/page.py"


def test_peers_did_the_same_work() -> None:
    contests = measured("peers")["contests"]
    learning = {"fedavg_12", "fedavg_100", "flower_12", "flower_100", "ifca_12"}
    assert set(contests) == learning | {"steps_12", "steps_1000", "vdn"}
    for name in learning:
        assert contests[name]["largest_relative_difference_of_movement"] < 1e-4
