from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.data import load_dataset
from covey.data.sources import fashion_mnist
from covey.errors import DataError
from covey.scenario.schema import Data

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 28, 28)).astype(np.uint8)
LABELS = np.array([9, 0, 0, 3, 1], np.uint8)


def idx(array: Any) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(folder: Path, *, packed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for half, rows in (("train", slice(0, 3)), ("test", slice(3, 5))):
        for name, array in ((fashion_mnist.IMAGES[half], IMAGES), (fashion_mnist.LABELS[half], LABELS)):
            raw = idx(array[rows])
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(raw) if packed else raw)
    return folder


def load(path: Path | None) -> Any:
    return load_dataset(Data(name="fashion_mnist", path=str(path) if path else None))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("inside", ["", "fashion-mnist", "fashion_mnist"])
def test_idx_files_are_read_plain_and_gzipped(tmp_path: Path, packed: bool, inside: str) -> None:
    write(tmp_path / inside, packed=packed)
    dataset = load(tmp_path)
    np.testing.assert_array_equal(dataset.x[:, 0], IMAGES)
    np.testing.assert_array_equal(dataset.y, LABELS)
    assert dataset.test.tolist() == [False, False, False, True, True]
    assert dataset.classes[9] == "ankle boot"


def test_the_system_folder_is_used_only_without_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion_mnist, "SYSTEM_FOLDERS", (write(tmp_path / "system"),))
    assert load(None).source == str(tmp_path / "system")
    with pytest.raises(DataError, match="dataset-fashion-mnist"):
        load(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("train-images-idx3-ubyte", lambda raw: b"\x00\x00\x08\x01" + raw[4:], "starts with 00000801.*must.*00000803"),
        ("train-images-idx3-ubyte", lambda raw: raw[:-1], "2,367 bytes, but its header implies 2,368"),
        ("train-images-idx3-ubyte", lambda raw: raw + b"x", "2,369 bytes"),
        ("t10k-labels-idx1-ubyte", lambda raw: raw[:6], "has 6 bytes"),
        ("t10k-labels-idx1-ubyte", lambda raw: b"", "starts with "),
        ("t10k-labels-idx1-ubyte", lambda raw: idx(np.array([3], np.uint8)), "2 test images, but 1 labels"),
        ("t10k-labels-idx1-ubyte", lambda raw: idx(np.array([3, 10], np.uint8)), "label 10"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, damage: Any, words: str) -> None:
    path = write(tmp_path) / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=words):
        load(tmp_path)


def test_a_truncated_gzip_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, packed=True) / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is damaged or incomplete"):
        load(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (write(tmp_path) / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="train-labels-idx1-ubyte"):
        load(tmp_path)
