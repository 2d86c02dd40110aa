"""Dependencies point one way; the table in CONTRIBUTING.md is checked here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "covey"
BASE = {"errors", "names", "seeding", "scenario", "compiled"}
ALLOWED: dict[str, set[str]] = {
    "scenario": {"errors"},
    "radio": BASE,
    "allocation": {"errors", "compiled"},
    "learning": BASE,
    "privacy": {"errors", "seeding"},
    "security": {"errors"},
    "theory": {"errors"},
    "data": BASE,
    "association": BASE | {"allocation"},
    "simulation": BASE | {"radio", "allocation", "learning", "privacy", "security", "data", "association"},
    "environment": BASE | {"radio", "allocation", "learning", "data", "association", "simulation"},
    "learners": BASE | {"environment", "association", "data", "simulation"},
    "pools": {"errors"},
    "evaluation": BASE
    | {"pools", "environment", "learners", "association", "data", "learning", "simulation", "theory"},
    "deploy": BASE
    | {
        "association",
        "data",
        "learners",
        "learning",
        "privacy",
        "radio",
        "report",
        "security",
        "simulation",
    },
    "web": BASE
    | {
        "radio",
        "allocation",
        "learning",
        "privacy",
        "data",
        "association",
        "simulation",
        "environment",
        "learners",
        "report",
    },
    "figures": BASE
    | {
        "pools",
        "environment",
        "learners",
        "association",
        "allocation",
        "evaluation",
        "simulation",
        "learning",
        "report",
        "theory",
    },
}


def imported_packages(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("covey"):
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("covey.")}
    return names


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_is_below_it(package: str) -> None:
    files = list((SOURCE / package).rglob("*.py"))
    assert files
    for path in files:
        outside = imported_packages(path) - {package} - ALLOWED[package]
        assert not outside, f"{path.relative_to(SOURCE)} imports {sorted(outside)}"
