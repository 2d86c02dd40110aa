from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.kernel_results import COMPILERS, results

import covey.compiled
from covey.arrays import dense
from covey.compiled import compiled

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
KERNELS = SOURCE / "covey" / "federated" / "kernels"


def twice(number: float) -> float:
    return 2.0 * number


def imports(file: Path) -> set[str]:
    """The packages that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def names() -> list[str]:
    """The modules that compile something."""
    files = [file for file in SOURCE.rglob("*.py") if "covey.compiled" in imports(file)]
    return [".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in files]


def test_only_the_kernels_of_convolutions_need_a_compiler() -> None:
    users = {file for file in SOURCE.rglob("*.py") if {name.split(".")[0] for name in imports(file)} & set(COMPILERS)}
    assert users == {SOURCE / "covey" / "compiled.py", KERNELS / "convolution.py"}


def test_without_numba_a_function_is_itself_and_as_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covey.compiled, "numba", None)

    def wrapped(one: np.uint64, other: np.uint64, zero: np.float64) -> tuple[np.uint64, np.float64]:
        return one - other, np.float64(1.0) / zero

    with np.errstate(all="raise"):
        assert compiled(twice)(1.5) == 3.0
        assert compiled(wrapped)(np.uint64(1), np.uint64(2), np.float64(0.0)) == (2**64 - 1, np.inf)


def test_everything_gives_the_same_bits_without_numba(tmp_path: Path) -> None:
    pytest.importorskip("numba", reason="there is nothing to compare with")
    others = [name for name in names() if not name.startswith("covey.federated.kernels")]
    command = [sys.executable, "-m", "tests.kernel_results", "--without-numba", *others]
    plain = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=500, check=True)
    answer = json.loads(plain.stdout.splitlines()[-1])
    assert answer["compilers"] == []
    assert answer["results"] == results(tmp_path)


def test_a_compiled_function_gives_the_same() -> None:
    assert compiled(twice)(1.5) == twice(1.5)


def test_without_a_folder_to_write_to_it_still_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba", reason="there is nothing to compile with")
    njit = numba.njit

    def without_folder(**options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", without_folder)
    assert compiled(twice)(1.5) == 3.0


def test_kernels_call_only_kernels_of_their_own_file() -> None:
    # The copy on disk of a kernel would not notice a change of another file.
    dispatcher = pytest.importorskip("numba.core.dispatcher", reason="there is nothing to compile with").Dispatcher
    kernels = 0
    for module in map(importlib.import_module, names()):
        own = [value for value in vars(module).values() if isinstance(value, dispatcher)]
        assert {kernel.py_func.__module__ for kernel in own} <= {module.__name__}
        kernels += len(own)
        for kernel in own:
            used = [vars(module).get(name) for name in kernel.py_func.__code__.co_names]
            assert not any(isinstance(value, ModuleType) and value is not np for value in used)
    assert kernels > 10


def test_dense_arrays_are_contiguous_writeable_and_copied_only_when_they_are_not() -> None:
    fine = np.arange(6.0).reshape(2, 3)
    assert dense(fine, np.float64) is fine
    locked = fine.copy()
    locked.flags.writeable = False
    for other in (fine.T, fine[:, ::2], np.broadcast_to(fine[0], (2, 3)), locked, fine.astype(np.int32), fine.tolist()):
        array = dense(other, np.float64)
        assert array.flags.carray
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, other)
        assert not np.shares_memory(array, fine)
