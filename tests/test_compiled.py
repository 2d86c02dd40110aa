from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import covey.allocation
import covey.association
import covey.environment
import covey.learning
from covey.allocation.arrays import dense
from covey.compiled import compiled


def twice(number: float) -> float:
    return 2.0 * number


def modules() -> list[ModuleType]:
    packages = (covey.allocation, covey.association, covey.environment, covey.learning)
    names = [
        f"{package.__name__}.{info.name}" for package in packages for info in pkgutil.iter_modules(package.__path__)
    ]
    return [importlib.import_module(name) for name in names]


def test_a_compiled_function_gives_the_same() -> None:
    assert compiled(twice)(1.5) == twice(1.5)


def test_without_a_folder_to_write_to_it_still_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = numba.njit

    def without_folder(**options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", without_folder)
    assert compiled(twice)(1.5) == 3.0


def test_kernels_call_only_kernels_of_their_own_file() -> None:
    # The copy on disk of a kernel would not notice a change of another file.
    kernels = 0
    for module in modules():
        own = [value for value in vars(module).values() if isinstance(value, Dispatcher)]
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
