"""The list of all runs and trainings in a folder, cached by file modification times."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from covey.agents.training_files import CHECKPOINT as TRAINING_CHECKPOINT
from covey.agents.training_files import METRICS
from covey.dashboard.entries import Entry, Facts, facts_of
from covey.dashboard.runs_folder import MARKS, OUTPUT, Folder, NotFoundError, stat_of
from covey.simulation.checkpoint import CHECKPOINT
from covey.simulation.progress import PROGRESS, worker_of

#: Files whose modification times and sizes are the cache key of an entry.
_WATCHED = (
    PROGRESS, "summary.json", "scenario.toml", "learner.json", CHECKPOINT, TRAINING_CHECKPOINT, METRICS, OUTPUT,
)  # fmt: skip

Signature = tuple[tuple[str, int, int], ...]


class Catalogue:
    """Entries of a folder; thread-safe.

    `starting(name)` is the process id of a job started by this dashboard, which may not have taken its lock yet.
    """

    def __init__(self, folder: Folder, starting: Callable[[str], int | None] = lambda name: None) -> None:
        self.folder = folder
        self._starting = starting
        self._facts: dict[str, tuple[Signature, Facts]] = {}
        self._lock = threading.Lock()

    def entries(self) -> list[Entry]:
        """All entries, most recently changed first."""
        found = [self._entry(name, files) for name, files in self.folder.walk()]
        with self._lock:
            names = {entry.id for entry in found}
            self._facts = {name: facts for name, facts in self._facts.items() if name in names}
        return sorted(found, key=lambda entry: (-entry.updated, entry.id))

    def entry(self, name: str) -> Entry:
        """One entry; raises `NotFoundError` if there is none of this name."""
        path = self.folder.place(name)
        files = {file.name: stat for file in os.scandir(path) if (stat := stat_of(file)) is not None}
        if not MARKS & files.keys():
            raise NotFoundError(f"'{name}' holds neither a run nor a training; look one up in the list")
        return self._entry(name, files)

    def worker(self, name: str) -> int | None:
        """Process id of the worker of an entry; 0 if it is on another machine, None if there is none."""
        worker = worker_of(self.folder.root / name)
        return self._starting(name) if worker is None else worker

    def _entry(self, name: str, files: Mapping[str, os.stat_result]) -> Entry:
        # Checked before the files are read: if the job ends in between, it merely shows as running a moment longer.
        worker = self.worker(name)
        facts = self._known(name, files)
        running = worker is not None
        return Entry(
            id=name,
            status="running" if running else facts.ended,
            updated=max((stat.st_mtime for file, stat in files.items() if file in _WATCHED), default=0.0),
            resumable=facts.resumable and not running,
            stoppable=bool(worker),
            message="" if running else facts.message,
            **facts.model_dump(exclude={"ended", "resumable", "message"}),
        )

    def _known(self, name: str, files: Mapping[str, os.stat_result]) -> Facts:
        signature = tuple((file, files[file].st_mtime_ns, files[file].st_size) for file in _WATCHED if file in files)
        with self._lock:
            known = self._facts.get(name)
        if known is None or known[0] != signature:
            known = signature, facts_of(self.folder.root / name, files)
            with self._lock:
                self._facts[name] = known
        return known[1]
