"""Every package that is imported is declared, and what only some users need is imported by few files."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.extras import EXTRAS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "covey"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: Packages whose module has another name.
MODULES = {"scikit-learn": "sklearn", "dp-accounting": "dp_accounting", "tomli-w": "tomli_w"}
#: Files and folders that may import an extra, and which one.
EXTRA_OF = {
    "compiled.py": "fast",
    "federated/kernels": "fast",
    "dashboard": "dashboard",
    "agents/board.py": "board",
    "security": "masks",
    "deploy": "flower",
    "jobs": "ray",
    "bench": "bench",
}


def modules_of(requirements: list[str]) -> set[str]:
    names = {re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in requirements}
    return {MODULES.get(name, name) for name in names}


def imported(path: Path) -> Iterator[str]:
    """Top-level names of all modules that a file imports, wherever in it and however."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield "tensorboard" if node.module == "torch.utils.tensorboard" else node.module.split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (a.value.split(".")[0] for a in node.args if isinstance(a, ast.Constant))


def third_party() -> Iterator[tuple[str, str]]:
    """Every file, relative to the package, with every package from elsewhere that it imports."""
    for path in sorted(SOURCE.rglob("*.py")):
        for name in sorted({*imported(path)} - {"covey"} - sys.stdlib_module_names):
            yield path.relative_to(SOURCE).as_posix(), name


def test_a_run_needs_at_most_fourteen_packages_and_each_is_imported() -> None:
    mandatory = modules_of(PROJECT["dependencies"])
    assert len(mandatory) <= 14
    assert mandatory <= {name for _, name in third_party()}


def test_every_import_is_declared_where_it_is_needed() -> None:
    mandatory = modules_of(PROJECT["dependencies"])
    undeclared = []
    for file, name in third_party():
        allowed = {EXTRA_OF[place] for place in EXTRA_OF if file == place or file.startswith(f"{place}/")}
        extras = {module for extra in allowed for module in modules_of(PROJECT["optional-dependencies"][extra])}
        if name not in mandatory | extras:
            undeclared.append(f"{file}: {name}")
    assert not undeclared


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_missing_when_one_of_its_packages_is(extra: str) -> None:
    assert set(EXTRAS[extra]) == modules_of(PROJECT["optional-dependencies"][extra])


def test_setup_installs_the_extras_that_the_two_commands_show() -> None:
    assert PROJECT["optional-dependencies"]["default"] == ["covey[fast,dashboard,board,masks]"]
    assert "--editable .[default,test]\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-flower.txt"])
def test_constraints_pin_every_package_once_and_torch_to_the_local_build(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()[1:]
    pinned = dict(line.split("==") for line in lines)
    assert len(pinned) == len(lines)
    assert pinned["torch"] == "2.13.0"
    wanted = {re.split(r"[\[<>=!~; ]", text)[0].lower() for text in PROJECT["dependencies"]}
    assert wanted <= {key.lower().replace("_", "-") for key in pinned}


def test_flower_holds_nobody_back() -> None:
    """Versions that results depend on are the same in both files; Flower is in its own alone."""
    pins = [
        dict(line.split("==") for line in (ROOT / name).read_text(encoding="utf-8").splitlines()[1:])
        for name in ("constraints.txt", "constraints-flower.txt")
    ]
    assert "flwr" not in pins[0]
    for name in ("torch", "numpy", "scipy", "scikit-learn", "dp-accounting", "numba", "llvmlite", "threadpoolctl"):
        assert pins[0][name] == pins[1][name]
