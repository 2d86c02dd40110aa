"""Computing cells: over processes, in order of importance, each once, resumed where it stopped."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from covey.errors import CoveyError, OutputError
from covey.figures.cells import Cell, Values, policy_file, result_file
from covey.pools import open_pool, results
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
#: The record of a cell as a line of JSON, and its policy if it makes one.
Finished = tuple[bytes, bytes | None]
#: Told what has been finished, how many are, and how many are known of.
Progress = Callable[[str, int, int], None]


def finish(
    plan: Plan, store: Store, processes: int, on_progress: Progress = lambda *_: None, ray: str | None = None
) -> None:
    """Compute all cells of a plan that are missing, in processes of this machine or on a Ray cluster.

    The plan is asked again after every cell, because some cells, such as trainings with tuned settings, are
    known only when others are finished. Every process works with one thread on one cell at a time, so that results
    do not depend on the number of processes, nor on where they are.
    """
    busy: dict[str, Cell] = {}

    def more() -> tuple[Cell, Callable[..., Finished], tuple[Any, ...]] | None:
        wanted = _with_needs(plan(store))
        missing = [cell for cell in wanted if not _finished(cell, wanted, store)]
        ready = [c for c in missing if c.key not in busy and all(store.has_policy(need) for need in c.needs)]
        if ready:
            busy[ready[0].key] = ready[0]
        on_progress(", ".join(cell.label for cell in busy.values()), len(wanted) - len(missing), len(wanted))
        return (ready[0], _compute, (ready[0], ready[0].key, _policies(ready[0], store.folder))) if ready else None

    with open_pool(processes, ray) as pool:
        for cell, (record, policy) in results(pool, more):
            _write(store.folder, cell, record, policy)
            del busy[cell.key]


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


def _policies(cell: Cell, folder: Path) -> dict[str, bytes]:
    """The policies that a cell needs, by the key of their training."""
    return {need.key: policy_file(folder, need).read_bytes() for need in cell.needs}


def _compute(cell: Cell, key: str, policies: dict[str, bytes]) -> Finished:
    """The record of a cell and its policy if it makes one, computed in a folder of its own."""
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
    record = {"cell": cell.content, "values": values, "seconds": round(time.process_time() - started, 2)}
    return json.dumps(record | {"versions": versions()}, allow_nan=False).encode() + b"\n", policy


def _write(folder: Path, cell: Cell, record: bytes, policy: bytes | None) -> None:
    """Keep a finished cell: its policy first, because the record says that all is there."""
    for path, content in ((policy_file(folder, cell), policy), (result_file(folder, cell), record)):
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
