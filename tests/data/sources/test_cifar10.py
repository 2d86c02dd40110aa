from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.data import load_dataset
from covey.data.sources import cifar10
from covey.errors import DataError
from covey.scenario.schema import Data


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "RECORDS", 4)


def images() -> Any:
    """(24, 3, 32, 32): image n has red n, green row number, blue column number, so any mix-up shows."""
    x = np.empty((24, 3, 32, 32), np.uint8)
    x[:, 0] = np.arange(24)[:, None, None]
    x[:, 1] = np.arange(100, 132)[:, None]
    x[:, 2] = np.arange(200, 232)
    return x


def labels() -> Any:
    return np.arange(24) % 10


def write_binary(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for i, batch in enumerate(cifar10.BATCHES):
        records = b""
        for n in range(4 * i, 4 * i + 4):
            # The official record, byte by byte: label, 1024 red, 1024 green, 1024 blue, rows from the top.
            planes = [bytes([n] * 1024)]
            planes.append(bytes(100 + row for row in range(32) for _ in range(32)))
            planes.append(bytes(200 + column for _ in range(32) for column in range(32)))
            records += bytes([n % 10]) + b"".join(planes)
        (folder / f"{batch}.bin").write_bytes(records)
    return folder


def write_python(folder: Path, protocol: int = 2) -> Path:
    folder.mkdir(parents=True)
    for i, batch in enumerate(cifar10.BATCHES):
        rows = slice(4 * i, 4 * i + 4)
        content = {
            b"batch_label": b"some batch",
            b"labels": labels()[rows].tolist(),
            b"data": images()[rows].reshape(4, 3072),
            b"filenames": [b"a.png"] * 4,
        }
        (folder / batch).write_bytes(pickle.dumps(content, protocol))
    return folder


def load(path: Path) -> Any:
    return load_dataset(Data(name="cifar10", path=str(path)))


@pytest.mark.parametrize(
    "inside", ["", "cifar-10-batches-bin", "cifar-10-batches-bin22", "package/cifar-10-batches-bin22"]
)
def test_binary_batches_keep_channels_rows_and_columns(tmp_path: Path, inside: str) -> None:
    write_binary(tmp_path / "root" / inside)
    dataset = load(tmp_path / "root")
    np.testing.assert_array_equal(dataset.x, images())
    np.testing.assert_array_equal(dataset.y, labels())
    assert dataset.test.tolist() == [False] * 20 + [True] * 4
    assert dataset.classes[3] == "cat"
    assert dataset.x.dtype == np.uint8


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_python_batches_give_the_same_images(tmp_path: Path, protocol: int) -> None:
    write_python(tmp_path / "cifar-10-batches-py", protocol)
    dataset = load(tmp_path)
    np.testing.assert_array_equal(dataset.x, images())
    np.testing.assert_array_equal(dataset.y, labels())


def test_a_batch_as_python_2_wrote_it_is_read(tmp_path: Path) -> None:
    write_python(tmp_path / "cifar-10-batches-py")
    pixels = images()[:4].tobytes()
    # Protocol 2 with byte strings (opcode T) and numpy's old module name, as in the official files.
    old = (
        b"\x80\x02}(U\x06labels](K\x00K\x01K\x02K\x03eU\x04datacnumpy.core.multiarray\n_reconstruct\n"
        b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x04M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + len(pixels).to_bytes(4, "little")
        + pixels
        + b"tbu."
    )
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(old)
    np.testing.assert_array_equal(load(tmp_path).x, images())


def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path: Path) -> None:
    folder = write_python(tmp_path / "cifar-10-batches-py")
    mark = tmp_path / "ran"

    class Attack:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(mark),)

    (folder / "data_batch_2").write_bytes(pickle.dumps({b"data": Attack(), b"labels": []}))
    with pytest.raises(DataError, match=r"mkdir, which is not an array"):
        load(tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "payload", [b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.", b"cbuiltins\neval\n(U\x011tR."]
)
def test_pickles_reach_no_other_function(tmp_path: Path, payload: bytes) -> None:
    folder = write_python(tmp_path / "cifar-10-batches-py")
    (folder / "data_batch_1").write_bytes(b"\x80\x02" + payload)
    with pytest.raises(DataError, match=r"not allowed|not an array"):
        load(tmp_path)


def test_a_truncated_binary_batch_names_file_and_sizes(tmp_path: Path) -> None:
    folder = write_binary(tmp_path / "cifar-10-batches-bin")
    batch = folder / "data_batch_3.bin"
    batch.write_bytes(batch.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"data_batch_3\.bin has 12,287 bytes, but a CIFAR-10 batch has 12,292"):
        load(tmp_path)


def test_a_truncated_python_batch_names_file_and_size(tmp_path: Path) -> None:
    folder = write_python(tmp_path / "cifar-10-batches-py")
    batch = folder / "test_batch"
    batch.write_bytes(batch.read_bytes()[:500])
    with pytest.raises(DataError, match=r"test_batch has 500 bytes.*more than 12,288 bytes"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({b"data": np.zeros((3, 3072), np.uint8), b"labels": [0] * 3}, r"\(3, 3072\) and 3 labels"),
        ({b"data": np.zeros((4, 3072), np.float32), b"labels": [0] * 4}, "not a CIFAR-10 batch"),
        ({b"labels": [0] * 4}, "not a CIFAR-10 batch"),
        ([1, 2], "not a CIFAR-10 batch"),
        ({b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, 10]}, "labels outside 0 to 9"),
    ],
)
def test_a_wrong_python_batch_is_refused(tmp_path: Path, content: Any, words: str) -> None:
    folder = write_python(tmp_path / "cifar-10-batches-py")
    (folder / "data_batch_1").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=words):
        load(tmp_path)


def test_a_label_out_of_range_is_refused(tmp_path: Path) -> None:
    folder = write_binary(tmp_path / "cifar-10-batches-bin")
    batch = folder / "test_batch.bin"
    batch.write_bytes(b"\x0a" + batch.read_bytes()[1:])
    with pytest.raises(DataError, match=r"test_batch\.bin has labels outside 0 to 9"):
        load(tmp_path)


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    folder = write_binary(tmp_path / "cifar-10-batches-bin")
    (folder / "data_batch_5.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_5\.bin is missing"):
        load(tmp_path)


def test_a_missing_data_set_names_folder_and_command(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="covey data fetch cifar10") as caught:
        load(tmp_path)
    assert str(tmp_path) in str(caught.value)
