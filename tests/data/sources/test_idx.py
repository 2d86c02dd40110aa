from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.data.idx_files import CLASSES, PICTURES, idx, write_idx

from covey.data import Dataset, load_dataset
from covey.errors import DataError
from covey.scenario.schema import Data

NAMES = ("mnist", "fashion_mnist")


def load(name: str, path: Path | None) -> Dataset:
    return load_dataset(Data(name=name, path=str(path) if path else None))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("mnist", ""), ("mnist", "mnist"), ("mnist", "MNIST/raw"),
        ("fashion_mnist", ""), ("fashion_mnist", "fashion-mnist"), ("fashion_mnist", "fashion_mnist"),
    ],
)  # fmt: skip
def test_idx_files_are_read_plain_and_gzipped(tmp_path: Path, name: str, inside: str, packed: bool) -> None:
    write_idx(tmp_path / inside, packed=packed)
    dataset = load(name, tmp_path)
    np.testing.assert_array_equal(dataset.x[:, 0], PICTURES)
    np.testing.assert_array_equal(dataset.y, CLASSES)
    assert dataset.name == name
    assert dataset.test.tolist() == [False, False, False, True, True]
    assert dataset.source == str(tmp_path / inside)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("file", "damage", "words"),
    [
        ("train-images-idx3-ubyte", lambda raw: b"\x00\x00\x08\x01" + raw[4:], "starts with 00000801.*must.*00000803"),
        ("train-images-idx3-ubyte", lambda raw: raw[:-1], "2,367 bytes, but its header asks for 2,368"),
        ("train-images-idx3-ubyte", lambda raw: raw + b"x", "2,369 bytes"),
        ("t10k-labels-idx1-ubyte", lambda raw: raw[:6], "has 6 bytes"),
        ("t10k-labels-idx1-ubyte", lambda raw: b"", "starts with nothing"),
        ("t10k-labels-idx1-ubyte", lambda raw: idx(np.array([3], np.uint8)), "2 test images, but 1 labels"),
        ("t10k-labels-idx1-ubyte", lambda raw: idx(np.array([3, 10], np.uint8)), "label 10"),
        ("t10k-images-idx3-ubyte", lambda raw: idx(PICTURES[:2, 1:]), "differ in size"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, file: str, damage: Any, words: str) -> None:
    path = write_idx(tmp_path) / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=words):
        load(name, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_gzip_is_refused_with_the_command_to_run(tmp_path: Path, name: str) -> None:
    path = write_idx(tmp_path, packed=True) / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    words = rf"train-images-idx3-ubyte\.gz is damaged or incomplete .*`covey data fetch {name}`"
    with pytest.raises(DataError, match=words):
        load(name, tmp_path)


def test_a_file_that_is_no_gzip_is_refused(tmp_path: Path) -> None:
    path = write_idx(tmp_path, packed=True) / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(gzip.decompress(path.read_bytes()))
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz is damaged"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", ["train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"])
def test_a_missing_file_is_named(tmp_path: Path, name: str, file: str) -> None:
    (write_idx(tmp_path) / file).unlink()
    with pytest.raises(DataError, match=rf"{file} \(or {file}\.gz\) is missing"):
        load(name, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_files_without_a_folder_of_their_own_are_taken_only_where_the_scenario_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COVEY_DATA", str(write_idx(tmp_path)))
    with pytest.raises(DataError, match=rf"'{name}' is not in .*covey data fetch {name}"):
        load(name, None)
    assert len(load(name, tmp_path).y) == 5


def test_one_idx_data_set_is_not_taken_for_the_other(tmp_path: Path) -> None:
    write_idx(tmp_path / "fashion-mnist")
    with pytest.raises(DataError, match="'mnist' is not in"):
        load("mnist", tmp_path)
