"""The cache of finished jobs, in one file: all caching and resuming goes through it.

A store is a file of JSON lines, one record each: the description of the job, its values, how long it took, and the
versions of covey and of the packages that results depend on. A job is looked up by its content: scenario, seed,
settings, the weights of a trained policy or the code of any other (`covey.jobs.identity`). Records of other versions
are used only where the store was opened with `any_version`, and never replace one of the current versions.

Writing appends whole lines under a lock, so that several commands can share a store and a crash loses at most the line
that was being written. Every line ends with its own checksum: damaged lines are ignored, and their jobs run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from covey.errors import OutputError
from covey.files import make_folder, versions, why_not, write_atomically
from covey.jobs.identity import digest

try:
    import fcntl
except ImportError:  # on Windows, where only one command at a time may use a store
    fcntl = None  # type: ignore[assignment]

#: The result of a job, JSON-serialisable.
Values = dict[str, Any]
_CHECK = re.compile(rb',"check":"([0-9a-f]{12})"\}$')


class Job(Protocol):
    """A job as a store sees it."""

    @property
    def kind(self) -> str:
        """The kind of job, e.g. `training`."""

    @property
    def label(self) -> str:
        """A short human-readable label; records are sorted by it."""

    @property
    def content(self) -> Mapping[str, Any]:
        """Everything that the result depends on, apart from versions; JSON-serialisable."""

    @property
    def key(self) -> str:
        """`key_of` kind and content."""


def key_of(kind: str, content: Mapping[str, Any]) -> str:
    """The key of a job: equal for jobs of the same kind and content, whatever their labels."""
    return digest([kind, content])


@dataclass(frozen=True)
class Record:
    """A finished job.

    seconds: CPU time; versions: of covey and of the packages that results depend on, when it was computed; files:
    SHA-256 of its output files by path, relative to the store's folder; origin: where it was imported from.
    """

    kind: str
    label: str
    key: str
    job: Mapping[str, Any]
    values: Values
    versions: Mapping[str, str]
    seconds: float | None = None
    files: Mapping[str, str] | None = None
    origin: str | None = None

    def to_line(self) -> bytes:
        """One line of a store."""
        fields = {
            "kind": self.kind, "label": self.label, "key": self.key, "job": self.job, "values": self.values,
            "seconds": self.seconds, "files": self.files, "from": self.origin, "versions": self.versions,
        }  # fmt: skip
        given = {name: value for name, value in fields.items() if value is not None}
        text = json.dumps(given, separators=(",", ":")).encode()
        return text[:-1] + b',"check":"' + _checksum(text) + b'"}\n'

    @classmethod
    def from_line(cls, line: bytes) -> Record | None:
        """The record of a line; None if it is damaged."""
        found = _CHECK.search(line)
        text = line[: found.start()] + b"}" if found else b""
        if found is None or _checksum(text) != found[1]:
            return None
        fields = json.loads(text)
        fields["origin"] = fields.pop("from", None)
        try:
            return cls(**fields)
        except TypeError:  # written by a version with other fields
            return None


class Store:
    """The records of a file; the file and its folder are created with the first record.

    any_version: whether records of other versions are used too, where there is none of the current `versions`.
    """

    def __init__(self, path: Path, *, any_version: bool = False, software: Mapping[str, str] | None = None) -> None:
        self.path, self.any_version = path, any_version
        self.versions = dict(versions() if software is None else software)
        self._records: dict[str, Record] = {}
        self._others: dict[str, Record] = {}
        self._place: tuple[int, int] = (0, 0)
        self._last = b""
        self._digests: dict[tuple[str, int, int], str] = {}
        self._read()

    @property
    def folder(self) -> Path:
        """The folder of the store; files of its records are below it."""
        return self.path.parent

    def find(self, job: Job) -> Record | None:
        """The record of a job, if it is finished."""
        other = self._others.get(job.key) if self.any_version else None
        return self._records.get(job.key, other)

    def has(self, job: Job) -> bool:
        """Whether a job is finished."""
        return self.find(job) is not None

    def __getitem__(self, job: Job) -> Values:
        """The values of a finished job."""
        record = self.find(job)
        if record is None:
            raise KeyError(job.label)
        return record.values

    def other_version(self, job: Job) -> Record | None:
        """The record of a job by other versions, if there is one and none of the current versions."""
        return None if job.key in self._records else self._others.get(job.key)

    def records(self, kind: str | None = None) -> list[Record]:
        """All records (of one kind), one for each job, in a stable order."""
        found = (self._others if self.any_version else {}) | self._records
        return sorted((one for one in found.values() if kind in (None, one.kind)), key=_order)

    def keep(
        self,
        job: Job,
        values: Values,
        *,
        seconds: float | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> Record:
        """Store the result of a job: its files first, because the record certifies that they are complete."""
        for name, content in (files or {}).items():
            make_folder((self.folder / name).parent)
            write_atomically(self.folder / name, content)
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in (files or {}).items()}
        took = None if seconds is None else round(seconds, 2)
        record = Record(job.kind, job.label, job.key, job.content, values, self.versions, took, hashes or None)
        self.take(record)
        return record

    def take(self, record: Record) -> None:
        """Append a record as it is, for instance from another store; its files are not copied."""
        make_folder(self.folder)
        line = record.to_line()
        with self._locked() as file:
            self._read()  # records that other commands have added in the meantime
            if file.seek(0, os.SEEK_END) and not _ends_line(file):
                line = b"\n" + line  # after the partial line of a killed command
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self._read()

    def intact(self, job: Job) -> bool:
        """Whether a job is finished and all its files are present and unmodified."""
        record = self.find(job)
        return record is not None and all(self._hash(name) == own for name, own in (record.files or {}).items())

    def tidy(self) -> None:
        """Rewrite the file sorted, with one record for each job: of the current versions where there is one."""
        if not self.path.is_file():
            return
        with self._locked():
            self._place = (0, 0)  # all of it: what is not read here is lost
            self._read()
            found = sorted((self._others | self._records).values(), key=_order)
            write_atomically(self.path, b"".join(record.to_line() for record in found))
        self._read()

    def _read(self) -> None:
        """Read what was appended since the last time, or all of a file that was replaced."""
        try:
            file = open(self.path, "rb")  # noqa: SIM115 (closed below; the handler is for opening alone)
        except FileNotFoundError:
            self._records, self._others, self._place = {}, {}, (0, 0)
            return
        except OSError as error:
            raise OutputError(f"cannot read '{self.path}': {error.strerror}") from None
        with file:
            inode, offset = self._place
            status = os.fstat(file.fileno())
            file.seek(max(offset - len(self._last), 0))
            # A new file can have the inode of one that was replaced before.
            if status.st_ino != inode or status.st_size < offset or file.read(len(self._last)) != self._last:
                self._records, self._others, self._last, offset = {}, {}, b"", 0
            file.seek(offset)
            content = file.read()
        complete = content.rfind(b"\n") + 1
        lines = content[:complete].splitlines(keepends=True)
        self._last = lines[-1] if lines else self._last
        for line in (one.rstrip(b"\n") for one in lines):
            record = Record.from_line(line)
            if record is not None:
                own = record.versions == self.versions
                (self._records if own else self._others)[record.key] = record
        self._place = (status.st_ino, offset + complete)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """The file, open for appending and exclusively locked; reopened if it was replaced in the meantime."""
        try:
            while True:
                with open(self.path, "ab+") as file:
                    if fcntl is not None:
                        fcntl.flock(file, fcntl.LOCK_EX)
                    if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                        yield file
                        return
        except OSError as error:
            raise OutputError(why_not(self.path, error)) from None

    def _hash(self, name: str) -> str | None:
        """SHA-256 of a file below the folder, cached while the file is unchanged; None if it is missing."""
        path = self.folder / name
        try:
            status = path.stat()
            seen = (name, status.st_mtime_ns, status.st_size)
            if seen not in self._digests:
                self._digests[seen] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            return None
        return self._digests[seen]


def versions_text(records: Iterable[Record]) -> str:
    """The versions that computed these records, with record counts if there are several sets."""
    sets = Counter(", ".join(f"{name} {version}" for name, version in one.versions.items()) for one in records)
    if len(sets) <= 1:
        return next(iter(sets), "none")
    return "; ".join(f"{text} ({count} of {sets.total()})" for text, count in sorted(sets.items()))


def made_with(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The same, JSON-serialisable: every set of versions with its number of records."""
    texts = Counter(json.dumps(one.versions) for one in records)
    return [{"cells": count, "versions": json.loads(text)} for text, count in sorted(texts.items())]


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:12].encode()


def _ends_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _order(record: Record) -> tuple[str, list[tuple[str, int]], str]:
    """Sort key: kind, then label in natural order (numbers by value)."""
    words = re.findall(r"(\D*)(\d*)", record.label)
    return record.kind, [(word, int(number or -1)) for word, number in words], record.key
