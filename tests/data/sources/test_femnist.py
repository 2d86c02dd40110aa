from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.data import load_dataset
from covey.errors import DataError
from covey.scenario.schema import Data


def character(column: int) -> Any:
    """White paper with one dark stroke, 28x28, 255 is white."""
    image = np.full((28, 28), 255, np.uint8)
    image[5:20, column] = 51
    return image


def load(path: Path) -> Any:
    return load_dataset(Data(name="femnist", path=str(path)))


def write_npz(path: Path, **changes: Any) -> Path:
    arrays = {
        "x": np.stack([character(c) for c in (3, 4, 5)]),
        "y": np.array([0, 10, 61], np.uint8),
        "writer": np.array([7, 7, 9], np.int16),
        "test": np.array([0, 0, 1], np.uint8),
    } | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def write_leaf(folder: Path, **changes: Any) -> Path:
    for half, users in (("train", {"w1": [(3, 0)], "w2": [(4, 10)]}), ("test", {"w2": [(5, 61)]})):
        (folder / half).mkdir(parents=True)
        content = {
            "users": list(users),
            "num_samples": [len(u) for u in users.values()],
            "user_data": {
                name: {"x": [(character(c) / 255).ravel().tolist() for c, _ in u], "y": [y for _, y in u]}
                for name, u in users.items()
            },
        }
        if half == "train":
            content |= changes
        (folder / half / "all_data_niid_0.json").write_text(json.dumps(content))
    return folder


def check(dataset: Any) -> None:
    assert dataset.x.shape == (3, 1, 32, 32)
    assert dataset.x.dtype == np.uint8
    expected = np.zeros((32, 32))
    expected[7:22, 5] = 204
    np.testing.assert_array_equal(dataset.x[0, 0], expected)
    assert dataset.y.tolist() == [0, 10, 61]
    assert [dataset.classes[c] for c in dataset.y] == ["0", "A", "z"]
    assert dataset.test.tolist() == [False, False, True]


@pytest.mark.parametrize("place", ["femnist_107w.npz", "femnist.npz"])
def test_npz_is_padded_and_inverted(tmp_path: Path, place: str) -> None:
    write_npz(tmp_path / place)
    dataset = load(tmp_path)
    check(dataset)
    assert dataset.writer.tolist() == [7, 7, 9]
    check(load(tmp_path / place))


@pytest.mark.parametrize("inside", ["femnist", "femnist/data", ".", "data"])
def test_leaf_json_gives_the_same(tmp_path: Path, inside: str) -> None:
    write_leaf(tmp_path / inside)
    dataset = load(tmp_path)
    check(dataset)
    assert dataset.writer.tolist() == [0, 1, 1], "a writer keeps its number in both halves"


def test_several_files_are_ambiguous(tmp_path: Path) -> None:
    write_npz(tmp_path / "femnist_a.npz")
    write_npz(tmp_path / "femnist_b.npz")
    with pytest.raises(DataError, match=r"femnist_a\.npz, femnist_b\.npz\); set data\.path"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"writer": None}, "no array 'writer'"),
        ({"x": np.zeros((3, 32, 32), np.uint8)}, "uint8 of shape"),
        ({"x": np.zeros((3, 28, 28), np.float32)}, "x is float32"),
        ({"y": np.array([0, 1, 62])}, "label 62"),
        ({"y": np.array([0.0, 1.0, 2.0])}, "y must be integers"),
        ({"test": np.array([0, 1, 2])}, "test 0 or 1"),
        ({"y": np.array([{}, 1, 2], dtype=object)}, "cannot be read as npz"),
        ({"writer": np.array([0, 1])}, "writer has shape"),
    ],
)
def test_a_wrong_npz_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    write_npz(tmp_path / "femnist.npz", **changes)
    with pytest.raises(DataError, match=words):
        load(tmp_path)


def test_a_truncated_npz_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "femnist.npz")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="cannot be read as npz"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"user_data": {}}, "KeyError"),
        ({"users": ["w1"], "user_data": {"w1": {"x": [[0.5] * 783], "y": [1]}}}, r"\(1, 783\)"),
        ({"users": ["w1"], "user_data": {"w1": {"x": [[0.5] * 784, [1.0]], "y": [1, 2]}}}, "784 numbers"),
        ({"users": ["w1"], "user_data": {"w1": {"x": [[0.5] * 784], "y": [1, 2]}}}, "2 labels"),
        ({"users": ["w1"], "user_data": {"w1": {"x": [[1.5] * 784], "y": [1]}}}, "outside 0 to 1"),
        ({"users": ["w1"], "user_data": {"w1": {"x": [[0.5] * 784], "y": ["a"]}}}, "not integers"),
    ],
)
def test_wrong_leaf_json_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    write_leaf(tmp_path / "femnist", **changes)
    with pytest.raises(DataError, match=words):
        load(tmp_path)


def test_broken_json_and_a_missing_half_are_refused(tmp_path: Path) -> None:
    folder = write_leaf(tmp_path / "femnist")
    (folder / "test" / "all_data_niid_0.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read as LEAF JSON"):
        load(tmp_path)
    (folder / "test" / "all_data_niid_0.json").unlink()
    with pytest.raises(DataError, match=r"test has no \*\.json"):
        load(tmp_path)


def test_a_missing_data_set_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"preprocess\.sh"):
        load(tmp_path)
