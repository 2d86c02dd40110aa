"""Shared by the studies: computes missing cells in worker processes and caches them, sorted, in the study's store."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from covey.cli.common import cores, interruptible, progress_bar
from covey.figures.cells import CELLS, Cell, cells_in
from covey.figures.compute import finish
from covey.files import write_atomically


def options_of(description: str | None, results: Path) -> argparse.ArgumentParser:
    """A parser with the options of every study."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=results, help="folder of the study's results")
    parser.add_argument("--processes", type=int, default=cores())
    parser.add_argument("--any-version", action="store_true", help="reuse what other versions have computed")
    return parser


def compute(cells: Sequence[Cell], folder: Path, options: argparse.Namespace) -> None:
    """Compute the missing cells of a folder's store, in this order; the same command resumes after Ctrl-C."""
    store = cells_in(folder, any_version=options.any_version)
    with interruptible(), progress_bar(Console(stderr=True)) as progress:
        bar = progress.add_task("cells", total=len(cells), now="")
        finish(
            lambda _: [*cells],
            store,
            options.processes,
            lambda now, done, known: progress.update(bar, completed=done, total=known, now=now[:60]),
        )
    store.tidy()


def forget(cells: Sequence[Cell], folder: Path) -> None:
    """Remove the results of these cells from a folder's store, for instance because the code has changed."""
    path, keys = folder / CELLS, {cell.key for cell in cells}
    kept = [record.to_line() for record in cells_in(folder, any_version=True).records() if record.key not in keys]
    if path.is_file():
        write_atomically(path, b"".join(kept))
