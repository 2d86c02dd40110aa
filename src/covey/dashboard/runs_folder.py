"""The folder that a dashboard serves: resolves names to paths, safe against path traversal."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from covey.dashboard.scenario_keys import DEPTH, ENTRIES, NAME
from covey.errors import CoveyError
from covey.run_files import DEPLOYMENT, METRICS, POLICY, PROGRESS, RUN_CHECKPOINT, TRAINING_CHECKPOINT

#: Output of a job that the dashboard started.
OUTPUT = "output.txt"
#: A folder that holds one of these is a run or a training.
MARKS = frozenset({RUN_CHECKPOINT, TRAINING_CHECKPOINT, PROGRESS, METRICS, "rounds.csv", "learner.json", OUTPUT})
#: Downloadable files of an entry, with their media types.
FILES: dict[str, str] = {
    "report.html": "text/html; charset=utf-8",
    "summary.json": "application/json",
    "scenario.toml": "text/plain; charset=utf-8",
    "learner.json": "application/json",
    DEPLOYMENT: "application/json",
    "incidents.csv": "text/csv; charset=utf-8",
    OUTPUT: "text/plain; charset=utf-8",
    "rounds.csv": "text/csv; charset=utf-8",
    "users.csv": "text/csv; charset=utf-8",
    METRICS: "text/csv; charset=utf-8",
    "map.png": "image/png",
    "curves.png": "image/png",
    "blocks.png": "image/png",
    "training.png": "image/png",
    POLICY: "application/octet-stream",
    "models.safetensors": "application/octet-stream",
}
_NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class NotFoundError(CoveyError):
    """There is no entry or file of this name."""


class EntryNameError(CoveyError):
    """A name cannot be used for a new entry."""


class Folder:
    """All runs and trainings below `root`, by their path relative to it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve(strict=True)

    def place(self, name: str) -> Path:
        """The folder of an entry; raises `NotFoundError` for anything but a regular folder below the root.

        Symbolic links are not followed in any path component.
        """
        parts = name.split("/")
        path = self.root
        if len(name) > NAME or len(parts) > DEPTH or any(not _plain(part) for part in parts):
            raise _missing(name)
        for part in parts:
            path = path / part
            if not _is(path, stat.S_ISDIR):
                raise _missing(name)
        return path

    def file(self, name: str, file: str) -> Path:
        """A downloadable file of an entry."""
        path = self.place(name) / file
        if file not in FILES or not _is(path, stat.S_ISREG):
            raise NotFoundError(f"'{_short(name)}' has no file '{_short(file)}'; files are {', '.join(FILES)}")
        return path

    def walk(self) -> Iterator[tuple[str, dict[str, os.stat_result]]]:
        """Every entry with its regular files, up to `ENTRIES` entries and `DEPTH` levels."""
        found = 0
        pending = [("", self.root)]
        while pending:
            name, path = pending.pop()
            files, folders = _contents(path)
            if name and MARKS & files.keys():
                yield name, files
                found += 1
                if found >= ENTRIES:
                    return
            elif name.count("/") < DEPTH - 1 or not name:
                pending += [(f"{name}/{folder}" if name else folder, path / folder) for folder in folders]

    def name_for(self, wanted: str | None, fallback: str) -> str:
        """A free name for a new entry: the requested one, or the fallback, numbered if taken."""
        if wanted:
            if not _NEW_NAME.fullmatch(wanted):
                raise EntryNameError(
                    f"the name '{_short(wanted)}' cannot be used; take up to 64 letters, digits, dots, dashes and"
                    " underscores, beginning with a letter or digit"
                )
            if os.path.lexists(self.root / wanted):
                raise EntryNameError(f"there is already a '{wanted}'; choose another name")
            return wanted
        base = re.sub(r"[^A-Za-z0-9._-]", "_", fallback).lstrip("._-")[:56] or "run"
        name, number = base, 1
        while os.path.lexists(self.root / name):
            number += 1
            name = f"{base}-{number}"
        return name


def _plain(part: str) -> bool:
    """Whether a path component is a visible, printable name."""
    return bool(part) and not part.startswith(".") and not any(c in part for c in "/\\\0") and part.isprintable()


def _is(path: Path, kind: object) -> bool:
    try:
        return bool(kind(os.lstat(path).st_mode))  # type: ignore[operator]
    except (OSError, ValueError):
        return False


def _contents(path: Path) -> tuple[dict[str, os.stat_result], list[str]]:
    """Regular files and folders in a folder; empty if it cannot be read."""
    files: dict[str, os.stat_result] = {}
    folders: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_symlink() or not _plain(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif (entry.name in MARKS or entry.name in FILES) and (stat := stat_of(entry)) is not None:
                    files[entry.name] = stat
    except OSError:
        pass
    return files, sorted(folders)


def stat_of(file: os.DirEntry[str]) -> os.stat_result | None:
    """What is known of a regular file; None for anything else, and for files that a job has replaced meanwhile."""
    try:
        return file.stat(follow_symlinks=False) if file.is_file(follow_symlinks=False) else None
    except OSError:
        return None


def _missing(name: str) -> NotFoundError:
    return NotFoundError(f"there is no run or training '{_short(name)}' in this folder; look it up in the list")


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
