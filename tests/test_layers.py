"""Dependencies point one way; the table in CONTRIBUTING.md is checked here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "covey"
BASE = {
    "errors",
    "extras",
    "parts",
    "part_checks",
    "faults",
    "files",
    "run_files",
    "arrays",
    "seeding",
    "scenario",
    "compiled",
}
ALLOWED: dict[str, set[str]] = {
    "scenario": {"errors", "parts"},
    "radio": BASE,
    # An observation carries its uplink: the network knows the protocol by type only.
    "network": BASE | {"radio", "uplink"},
    "allocation": {"arrays", "errors", "compiled", "network"},
    "uplink": BASE | {"radio", "network", "allocation"},
    "federated": BASE | {"privacy"},
    "identification": BASE | {"federated", "privacy"},
    "privacy": {"errors", "seeding"},
    "security": {"errors"},
    "theory": {"errors"},
    "data": BASE,
    "association": BASE | {"network", "allocation", "uplink"},
    "simulation": BASE
    | {"identification", "radio", "network", "allocation", "uplink", "federated", "privacy", "security", "data"}
    | {"association"},
    "environment": BASE
    | {"identification", "radio", "network", "allocation", "federated", "data", "association", "simulation"},
    "agents": BASE | {"environment", "association", "data", "network", "simulation"},
    "jobs": {"errors", "extras", "files", "parts", "scenario"},
    "evaluation": BASE
    | {
        "agents",
        "association",
        "data",
        "environment",
        "federated",
        "identification",
        "jobs",
        "network",
        "simulation",
        "theory",
    },
    "deploy": BASE
    | {
        "identification",
        "association",
        "data",
        "agents",
        "federated",
        "privacy",
        "radio",
        "report",
        "security",
        "simulation",
    },
    "dashboard": BASE
    | {
        "radio",
        "network",
        "allocation",
        "federated",
        "privacy",
        "data",
        "association",
        "simulation",
        "environment",
        "agents",
        "report",
    },
    "figures": BASE
    | {
        "jobs",
        "environment",
        "agents",
        "association",
        "allocation",
        "evaluation",
        "simulation",
        "federated",
        "report",
        "theory",
    },
}


def imported_packages(path: Path) -> set[str]:
    """Packages of covey that a file imports, wherever in it; what only a type checker imports does not count."""
    names: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body.clear()
    for node in ast.walk(tree):
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
