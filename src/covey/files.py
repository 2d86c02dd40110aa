"""Files and folders: atomic writes, CSV and JSON, and error messages for failed writes."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import math
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from covey.errors import OutputError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: neither a crash nor a full disk nor a concurrent reader ever sees a partial file.

    The old file stays in place until the new one is complete on disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:  # also Ctrl-C: remove the partial file
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OutputError(why_not(path, error)) from None
        raise


def make_folder(folder: Path, option: str = "--out") -> None:
    """Create a folder if it is missing, and fail early if it is not writable.

    The error names the command-line `option` that sets another folder.
    """
    probe = folder / ".write-test"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(why_not(folder, error, option)) from None


def why_not(path: Path, error: OSError, option: str = "--out") -> str:
    """The error message for a failed write: the reason and the fix; `option` sets another folder."""
    other = f"choose another folder with {option}"
    reasons = {
        errno.ENOSPC: f"the disk is full; free some space or {other}",
        errno.EDQUOT: f"the disk quota is used up; free some space or {other}",
        errno.EROFS: f"the file system is read-only; {other}",
        errno.EACCES: f"you may not write there; {other}",
        errno.EPERM: f"you may not write there; {other}",
        errno.ENOTDIR: f"a part of the path is a file, not a folder; {other}",
        errno.EEXIST: f"a file of that name is in the way; {other}",
    }
    return f"cannot write '{path}': {reasons.get(error.errno or 0, error.strerror or str(error))}"


def versions() -> dict[str, str]:
    """Versions of Python, covey and the packages that its results depend on."""
    names = ("covey", "torch", "numpy", "scipy", "scikit-learn", "dp-accounting")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


def csv_bytes(rows: Iterable[dict[str, Any]]) -> bytes:
    """Rows as CSV; floats in their shortest round-trip form, NaN as empty cells."""
    text = io.StringIO(newline="")
    writer: csv.DictWriter[str] | None = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(text, fieldnames=list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """Floats in their shortest round-trip form, NaN as an empty cell."""
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return value


def plain(value: Any) -> Any:
    """A copy that strict JSON can represent: NaN becomes null, infinities the string "infinite"."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "infinite"
    return value
