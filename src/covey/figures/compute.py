"""Compute missing cells in a process pool, by priority, each once; interrupted plans resume."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from covey.errors import CoveyError
from covey.figures.cells import Cell, policy_file, policy_name
from covey.jobs import Store, Values, open_pool, results

#: The requested cells by priority, as far as they are known from finished cells.
Plan = Callable[[Store], list[Cell]]
#: The values of a cell, its CPU seconds, and its policy if it trains one.
Finished = tuple[Values, float, bytes | None]
#: Progress callback: labels of the running cells, number finished, number known.
Progress = Callable[[str, int, int], None]


def finish(
    plan: Plan, store: Store, processes: int, on_progress: Progress = lambda *_: None, ray: str | None = None
) -> None:
    """Compute the missing cells of a plan, in worker processes of this machine or on a Ray cluster.

    The plan is evaluated again after every cell, because some cells, such as trainings with tuned settings, are
    known only once others are finished. Each worker computes one cell at a time in a single thread, so that
    results depend neither on the number of workers nor on their machine.
    """
    busy: dict[str, Cell] = {}

    def more() -> tuple[Cell, Callable[..., Finished], tuple[Any, ...]] | None:
        wanted = _with_needs(plan(store))
        missing = [cell for cell in wanted if not _finished(cell, wanted, store)]
        ready = [c for c in missing if c.key not in busy and all(_policy_there(need, store) for need in c.needs)]
        if ready:
            busy[ready[0].key] = ready[0]
        on_progress(", ".join(cell.label for cell in busy.values()), len(wanted) - len(missing), len(wanted))
        return (ready[0], _compute, (ready[0], ready[0].key, _policies(ready[0], store.folder))) if ready else None

    with open_pool(processes, ray) as pool:
        for cell, (values, seconds, policy) in results(pool, more):
            files = {} if policy is None else {policy_name(cell): policy}
            store.keep(cell, values, seconds=seconds, files=files)
            del busy[cell.key]


def _with_needs(cells: Iterable[Cell]) -> list[Cell]:
    """The cells in dependency order, without duplicates."""
    found: dict[str, Cell] = {}
    for cell in cells:
        for one in (*cell.needs, cell):
            found.setdefault(one.key, one)
    return list(found.values())


def _finished(cell: Cell, wanted: list[Cell], store: Store) -> bool:
    """Whether nothing is left to do; a policy file is required only while unfinished cells depend on it."""
    if not store.has(cell):
        return False
    if cell.kind != "training" or _policy_there(cell, store):
        return True
    return all(store.has(other) for other in wanted if any(need.key == cell.key for need in other.needs))


def _policy_there(cell: Cell, store: Store) -> bool:
    """Whether a training is finished and its policy file is intact."""
    record = store.find(cell)
    return record is not None and bool(record.files) and store.intact(cell)


def _policies(cell: Cell, folder: Path) -> dict[str, bytes]:
    """The policies a cell depends on, by the key of their training."""
    return {need.key: policy_file(folder, need).read_bytes() for need in cell.needs}


def _compute(cell: Cell, key: str, policies: dict[str, bytes]) -> Finished:
    """The result of a cell, computed in a temporary folder."""
    if cell.key != key:
        raise CoveyError(
            f"'{cell.label}' is another experiment on the machine that should compute it: its calibrations or versions"
            " differ from those where the command was given; copy the folder `calibrations` of COVEY_DATA there"
        )
    started = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "policies").mkdir()
        for need in cell.needs:
            policy_file(folder, need).write_bytes(policies[need.key])
        values = cell.compute(folder)
        own = policy_file(folder, cell)
        policy = own.read_bytes() if own.is_file() else None
    return values, time.process_time() - started, policy
