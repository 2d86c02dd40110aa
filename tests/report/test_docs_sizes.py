"""The sizes and times in docs/commands.md are those that were measured."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def measuring() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report_size", ROOT / "benchmarks/report_size.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_on_commands_says_what_was_measured(measuring: ModuleType) -> None:
    report = json.loads((ROOT / "benchmarks/report_size.json").read_text(encoding="utf-8"))
    page = " ".join((ROOT / "docs/commands.md").read_text(encoding="utf-8").split())
    assert measuring.sentence(report) in page, "run python benchmarks/report_size.py and copy the sentence it prints"


def test_a_thousand_users_fit_into_a_few_megabytes_and_move_fluently() -> None:
    pages = json.loads((ROOT / "benchmarks/report_size.json").read_text(encoding="utf-8"))["pages"]
    assert pages["large"]["users"] == 1000
    assert pages["large"]["bytes"] < 3_000_000
    assert pages["large"]["move_ms"] < 100
