"""The summary of a run for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from covey.identification.rule import rule_of
from covey.report.sheets import (
    LISTED_USERS,
    Sheet,
    accuracy_sheet,
    security_sheet,
    spread_sheet,
    task_sheet,
    total_sheet,
    user_sheet,
    worst_sheet,
)
from covey.report.words import number, percent
from covey.simulation import History

_ASCII = str.maketrans({"\N{CHECK MARK}": "+", "\N{BALLOT X}": "x", "\N{MICRO SIGN}": "u"})


def summary_table(history: History) -> RenderableType:
    """Privacy notes, tasks, users and totals of a run, ready for `rich.print`."""
    return _SummaryTable(history)


class _SummaryTable:
    """Renders lazily: only the console knows whether it can print more than ASCII."""

    def __init__(self, history: History) -> None:
        self._history = history

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        history, summary = self._history, self._history.summary()
        ascii_only = options.ascii_only
        notes = Text(_plain("\n".join(f"- {note}" for note in summary["notes"]), ascii_only))
        yield Panel(notes, title="Privacy of this run", title_align="left", border_style="yellow")
        yield Text(_plain(_headline(history), ascii_only))
        if not history.records:
            yield Text("No round was played, so there are no results.")
            return
        sheets = [accuracy_sheet(history), task_sheet(summary)]
        if len(history.samples) <= LISTED_USERS:
            sheets.append(user_sheet(summary))
        else:
            sheets += [spread_sheet(summary), worst_sheet(summary)]
        sheets.append(total_sheet(history, summary))
        if history.scenario.security.mode == "masked":
            sheets.append(security_sheet(history, summary))
        for sheet in sheets:
            yield ""
            yield _table(sheet, ascii_only)
        if (rule := rule_of(history.scenario)) is None or not rule.given:
            yield Text("Identities are right or wrong under the best matching of tasks to groups.", style="dim")


def _headline(history: History) -> str:
    played = f"{len(history.records)} of {history.rounds} rounds"
    line = f"{history.scenario.name}, policy {history.policy}, seed {history.seed}: {played}"
    if not history.complete:
        line += " (interrupted)"
    if not history.records:
        return line
    last, start = history.records[-1], history.start
    lines = [(last.majority, "the most frequent class"), (last.central, "a central model")]
    beside = "; ".join(f"{percent(value)} by {words}" for value, words in lines if np.isfinite(value))
    return (
        f"{line}. Accuracy {percent(start['accuracy'])} -> {percent(last.accuracy)}{f' ({beside})' if beside else ''},"
        f" loss {number(start['loss'])} -> {number(last.loss)},"
        f" right identities {percent(last.clustering_accuracy)}."
    )


def _table(sheet: Sheet, ascii_only: bool) -> Table:
    table = Table(
        title=sheet.title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for index, head in enumerate(sheet.heads):
        table.add_column(head, justify="left" if index < sheet.words or head == "identity" else "right")
    for row in sheet.rows:
        table.add_row(*(Text(_plain(cell, ascii_only), style="red" if "wrong" in cell else "") for cell in row))
    return table


def _plain(text: str, ascii_only: bool) -> str:
    if not ascii_only:
        return text
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
