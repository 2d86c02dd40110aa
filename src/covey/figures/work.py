"""Computing cells: over processes, in order of importance, each once, resumed where it stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from covey.errors import CoveyError, OutputError
from covey.figures.cells import Cell, Values, policy_file, result_file
from covey.simulation.storage import versions, write_atomically


class Store:
    """The folder of finished cells; results are read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Values] = {}

    def has(self, cell: Cell) -> bool:
        """Whether the cell is finished."""
        return cell.key in self._read or result_file(self.folder, cell).is_file()

    def has_policy(self, cell: Cell) -> bool:
        """Whether the cell is finished and its policy is there."""
        return self.has(cell) and policy_file(self.folder, cell).is_file()

    def __getitem__(self, cell: Cell) -> Values:
        """The result of a finished cell."""
        if cell.key not in self._read:
            path = result_file(self.folder, cell)
            try:
                self._read[cell.key] = json.loads(path.read_text(encoding="utf-8"))["values"]
            except (ValueError, KeyError):
                raise OutputError(f"'{path}' is damaged; delete it, and it is computed again") from None
        return self._read[cell.key]

    def seconds(self, cells: Iterable[Cell]) -> float:
        """Processor time that these finished cells took."""
        return float(sum(record["seconds"] for record in self._records(cells)))

    def origins(self, cells: Iterable[Cell]) -> dict[str, int]:
        """How many of these finished cells were taken over from where, instead of being computed here."""
        return dict(Counter(record["from"] for record in self._records(cells) if "from" in record))

    def _records(self, cells: Iterable[Cell]) -> list[Values]:
        paths = [result_file(self.folder, cell) for cell in cells]
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]


#: The cells that are wanted, most important first, as far as they are known from what is finished.
Plan = Callable[[Store], list[Cell]]
#: Told what has been finished, how many are, and how many are known of.
Progress = Callable[[str, int, int], None]


def finish(plan: Plan, store: Store, processes: int, on_progress: Progress = lambda *_: None) -> None:
    """Compute all cells of a plan that are missing.

    The plan is asked again after every cell, because some cells, such as trainings with tuned settings, are
    known only when others are finished. Every process works with one thread on one cell at a time, so that results
    do not depend on the number of processes.
    """
    running: dict[Future[None], Cell] = {}
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_start)
    try:
        while True:
            wanted = _with_needs(plan(store))
            missing = [cell for cell in wanted if not _finished(cell, wanted, store)]
            busy = {cell.key for cell in running.values()}
            ready = [c for c in missing if c.key not in busy and all(store.has_policy(need) for need in c.needs)]
            for cell in ready[: processes - len(running)]:
                running[pool.submit(_compute, cell, store.folder)] = cell
            now = ", ".join(cell.label for cell in running.values())
            on_progress(now, len(wanted) - len(missing), len(wanted))
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell = running.pop(future)
                _collect(future, cell)
    finally:
        # What runs is given up: it is not finished, and nobody waits for it any more.
        for process in list((pool._processes or {}).values()) if running else ():
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _collect(future: Future[None], cell: Cell) -> None:
    try:
        future.result()
    except BrokenProcessPool:
        raise CoveyError(
            f"a worker process ended before its time, perhaps for lack of memory, while '{cell.label}' was computed;"
            " what is finished is kept: give the same command again, with --processes 1 if memory is short"
        ) from None


def _with_needs(cells: Iterable[Cell]) -> list[Cell]:
    """The cells and, before each, those it needs; each once."""
    found: dict[str, Cell] = {}
    for cell in cells:
        for one in (*cell.needs, cell):
            found.setdefault(one.key, one)
    return list(found.values())


def _finished(cell: Cell, wanted: list[Cell], store: Store) -> bool:
    """Whether there is nothing to do: a policy must be there only as long as somebody still needs it."""
    if not store.has(cell):
        return False
    if cell.kind != "training" or store.has_policy(cell):
        return True
    return all(store.has(other) for other in wanted if any(need.key == cell.key for need in other.needs))


def _start() -> None:
    """A worker leaves Ctrl-C to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)


def _compute(cell: Cell, folder: Path) -> None:
    started = time.process_time()
    values = cell.compute(folder)
    path = result_file(folder, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"cell": cell.content, "values": values, "seconds": round(time.process_time() - started, 2)}
    text = json.dumps(record | {"versions": versions()}, allow_nan=False)
    write_atomically(path, text.encode() + b"\n")
