"""Atomic, resumable downloads: a partial file is never mistaken for a complete one.

Downloads go to a `.part` file that a later call resumes; folders are filled under a hidden
temporary name, verified, and renamed in one step.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from covey.errors import DataError, OutputError

CHUNK_BYTES = 1 << 18
#: Connect and read timeout; short, so that the fallback is tried soon.
TIMEOUT_S = 8.0

#: Progress callback: bytes so far and total bytes, None when the server does not send a length.
Report = Callable[[int, int | None], None]


class UnreachableError(Exception):
    """A source could not be used; the message says why. Another source may be tried."""


def download(url: str, part: Path, md5: str, report: Report) -> None:
    """Downloads `url` to `part`, resuming a partial file; raises `UnreachableError`.

    An interrupted transfer is retried as long as every attempt brings new bytes.
    """
    while True:
        before = _size(part)
        try:
            complete = _transfer(url, part, report)
        except urllib.error.HTTPError as error:
            # 416: no bytes follow the part, so it is complete or of another file; the MD5 decides.
            if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise UnreachableError(f"the server answered {error.code} {error.reason}") from None
            complete = True
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if _size(part) <= before:
                raise UnreachableError(str(reason) or type(reason).__name__) from None
            complete = False
        if complete:
            break
        if _size(part) <= before:
            raise UnreachableError("the server closed the connection early")
    found = file_md5(part)
    if found != md5:
        part.unlink()
        raise UnreachableError(f"its MD5 is {found}, not {md5}")


def _transfer(url: str, part: Path, report: Report) -> bool:
    start = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        if answer.status != http.client.PARTIAL_CONTENT:
            start = 0  # the server sends the whole file again
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else None
        with _writing(part, "ab" if start else "wb") as write:
            done = start
            while chunk := answer.read(CHUNK_BYTES):
                write(chunk)
                done += len(chunk)
                report(done, total)
    return total is None or done == total


@contextmanager
def _writing(path: Path, mode: str) -> Iterator[Callable[[bytes], None]]:
    # Kept apart from network errors: a full disk is no reason to try another server.
    def write(chunk: bytes) -> None:
        try:
            file.write(chunk)
        except OSError as error:
            raise cannot_write(path.parent, error) from None

    try:
        file: IO[bytes] = path.open(mode, buffering=0)
    except OSError as error:
        raise cannot_write(path.parent, error) from None
    with file:
        yield write


def unpack(archive: Path, folder: Path, wanted: Mapping[str, int]) -> None:
    """Copies the wanted files, by name with their sizes in bytes, from a tar archive into `folder`."""
    lacking = set(wanted)
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                # Only the base name is used, which prevents path traversal.
                name = PurePosixPath(member.name).name
                content = tar.extractfile(member) if name in lacking and member.isfile() else None
                if content is None:
                    continue
                if member.size != wanted[name]:
                    raise UnreachableError(f"{name} in it has {member.size:,} bytes, not {wanted[name]:,}")
                with _writing(folder / name, "wb") as write:
                    while chunk := content.read(CHUNK_BYTES):
                        write(chunk)
                lacking.remove(name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UnreachableError(f"it cannot be unpacked: {error}") from None
    if lacking:
        raise UnreachableError(f"{min(lacking)} is not in it")


@contextmanager
def filling(target: Path) -> Iterator[Path]:
    """A hidden temporary folder that is renamed to `target` on success and deleted on failure.

    An existing `target` is kept beside it under a hidden name.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise cannot_write(target.parent, error) from None
    try:
        yield folder
        folder.chmod(0o755)
        if target.exists():
            os.replace(target, _free_name(target.with_name(f".damaged-{target.name}")))
        os.replace(folder, target)
    except OSError as error:
        raise cannot_write(target.parent, error) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def file_md5(path: Path) -> str:
    """The MD5 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def cannot_write(folder: Path, error: OSError) -> OutputError:
    """The error for a folder that data cannot be written to."""
    return OutputError(
        f"cannot write to {folder}: {error.strerror or error}; choose another folder with --to or COVEY_DATA"
    )


def failed(name: str, reasons: list[str], by_hand: str) -> DataError:
    """The error for a data set that no source could provide."""
    return DataError(f"'{name}' could not be fetched: {'; '.join(reasons)}; {by_hand}")


def _free_name(path: Path) -> Path:
    number = 1
    while (candidate := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return candidate


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
