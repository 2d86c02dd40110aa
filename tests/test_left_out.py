"""Tests that need a browser are named where there is none, and fail where they were asked for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.processes import Ended, run

ROOT = Path(__file__).parents[1]
A_TEST = """
import pytest

@pytest.mark.browser
def test_a_page(browser):
    pass

def test_a_number():
    pass
"""


def run_tests(folder: Path, **environment: str) -> Ended:
    """Run two tests, one of which needs a browser, where no program can be found."""
    (folder / "test_it.py").write_text(A_TEST, encoding="utf-8")
    plugins = ["-p", "tests.conftest", "-p", "tests.browser.conftest", "-p", "no:cacheprovider", "-W", "ignore"]
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *plugins, str(folder)]
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return run(command, cwd=ROOT, env={**given, "COVEY_BROWSER": "", "PATH": str(folder), **environment})


def test_tests_without_a_browser_are_named_with_the_way_to_run_them(tmp_path: Path) -> None:
    result = run_tests(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed, 1 skipped" in result.stdout
    told = result.stdout[result.stdout.index("left out, so neither passed nor failed") :]
    assert "make test-browser" in told
    assert "test_it.py::test_a_page\n" in told
    assert "test_a_number" not in told


def test_a_browser_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    result = run_tests(tmp_path, COVEY_BROWSER="required")
    assert result.returncode == 1
    assert "1 passed, 1 error" in result.stdout
    assert "left out" not in result.stdout


@pytest.mark.parametrize("target", ["test", "test-browser", "docs"])
def test_ci_runs_every_check(target: str) -> None:
    assert f"make {target} || failed=1" in (ROOT / ".ci/run").read_text(encoding="utf-8")
