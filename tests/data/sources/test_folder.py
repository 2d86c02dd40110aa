from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.data import load_dataset
from covey.errors import DataError
from covey.scenario.schema import Data

X = np.arange(40, dtype=np.float64).reshape(20, 2)
Y = np.arange(20) % 2


def load(path: Path) -> Any:
    return load_dataset(Data(name="folder", path=str(path)))


def write(folder: Path, **changes: Any) -> Path:
    for name, array in ({"x": X, "y": Y} | changes).items():
        if array is not None:
            np.save(folder / f"{name}.npy", array)
    return folder


def test_a_folder_with_x_and_y_is_enough(tmp_path: Path) -> None:
    dataset = load(write(tmp_path))
    assert dataset.x.dtype == np.float32
    np.testing.assert_array_equal(dataset.normalise(dataset.x), X)
    assert dataset.classes == ("0", "1")
    assert [int(dataset.test[c == Y].sum()) for c in (0, 1)] == [2, 2], "a fifth of every class is held out"
    assert np.array_equal(dataset.test, load(tmp_path).test)


def test_optional_files_are_used(tmp_path: Path) -> None:
    test = Y == 1
    write(tmp_path, test=test, writer=np.arange(20, dtype=np.int32))
    (tmp_path / "classes.txt").write_text("cat\ndog\n\n", encoding="utf-8")
    dataset = load(tmp_path)
    assert np.array_equal(dataset.test, test)
    assert dataset.writer.tolist() == list(range(20))
    assert dataset.classes == ("cat", "dog")


def test_bytes_are_scaled_to_minus_one_to_one(tmp_path: Path) -> None:
    x = np.zeros((20, 1, 2, 2), np.uint8)
    x[:, :, 0] = 255
    dataset = load(write(tmp_path, x=x))
    assert dataset.x.dtype == np.uint8
    assert set(dataset.normalise(dataset.x).ravel()) == {-1.0, 1.0}


def test_an_npz_works_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=Y, classes=np.array(["a", "b"]))
    dataset = load(tmp_path / "mine.npz")
    np.testing.assert_array_equal(dataset.x, X)
    assert dataset.classes == ("a", "b")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": None}, "has no 'x'"),
        ({"y": None}, "has no 'y'"),
        ({"x": X.astype(np.int32)}, "dtype int32"),
        ({"x": X[:, 0]}, r"shape \(20,\)"),
        ({"x": np.where(X == 7, np.nan, X)}, "sample 3 holds NaN"),
        ({"x": np.where(X == 7, np.inf, X)}, "sample 3 holds NaN or infinity"),
        ({"x": X * 1e300}, "infinity"),
        ({"y": Y[:-1]}, "y has shape"),
        ({"y": Y.astype(float)}, "y has dtype float64"),
        ({"y": Y - 1}, "numbered from 0"),
        ({"test": np.full(20, 0.5)}, "test has dtype float64"),
        ({"test": np.full(20, 2)}, "must be bool"),
        ({"test": np.zeros(20, np.bool_)}, "no test samples"),
        ({"writer": np.zeros(20)}, "writer has dtype float64"),
        ({"y": np.array([object()] * 20)}, "cannot be read"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    write(tmp_path, **changes)
    with pytest.raises(DataError, match=words):
        load(tmp_path)


def test_fewer_names_than_classes_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "classes.txt").write_text("only\n", encoding="utf-8")
    with pytest.raises(DataError, match="label 1, but 1 classes"):
        load(tmp_path)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=np.array([object()] * 20))
    with pytest.raises(DataError, match="without objects"):
        load(tmp_path / "mine.npz")


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04broken"])
def test_a_file_that_is_no_npz_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as npz"):
        load(tmp_path / "mine.npz")


def test_a_truncated_npy_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "x.npy"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match=r"x\.npy cannot be read"):
        load(tmp_path)


def test_a_single_array_and_a_missing_path_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match="one array"):
        load(tmp_path / "x.npy")
    with pytest.raises(DataError, match="there is no"):
        load(tmp_path / "nowhere")
