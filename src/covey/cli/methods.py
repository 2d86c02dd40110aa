"""`covey methods`: every way to find the groups, what it needs and what it costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from covey.identification.methods import Method


def methods(
    as_json: Annotated[bool, typer.Option("--json", help="Print machine-readable JSON instead of tables.")] = False,
) -> None:
    """List every way to find the groups and to announce tasks: paper, needs, cost, and how to set it.

    Parts that installed packages offer are listed too. K is the number of tasks; rho adds up over announcements.

    Examples:

      covey methods

      covey run quick --set clustering.rule=loss_vectors --set privacy.identity=noisy_contrasts
    """
    from covey.identification.methods import methods as all_methods

    found = all_methods()
    if as_json:
        typer.echo(json.dumps([method.to_dict() for method in found], indent=2))
        return
    console = Console()
    for kind, title in (
        ("rule", "Rules: how users find their task"),
        ("announcement", "Announcements: how what users tell leaves their devices"),
    ):
        chosen = [method for method in found if method.kind == kind]
        table = Table(title=title, title_justify="left", show_lines=True)
        # Wide enough for what is copied from it; the others share what is left beside borders and padding.
        first = max(len(word) for one in chosen for word in one.line.split())
        table.add_column("method", width=first)
        for head in ("what it takes", "what it costs", "where it works"):
            table.add_column(head, width=max((console.width - first - 13) // 3, 10), overflow="fold")
        for method in chosen:
            table.add_row(*_cells(method))
        console.print(table)


def _cells(method: Method) -> tuple[Text, Text, Text, Text]:
    name = Text.assemble((method.name, "bold"), f"\n{method.paper}\n", (method.line, "cyan"))
    if method.problem:
        return name, Text(method.problem, style="yellow"), Text(), Text()
    partner = "announced by" if method.kind == "rule" else "for"
    goes_with = f"{partner}: {', '.join(method.goes_with)}" if method.goes_with else ""
    return (
        name,
        _lines(("a user computes: ", method.computes), ("seen: ", method.sees)),
        _lines(("rho: ", method.rho), ("air: ", method.air), ("passes: ", method.passes)),
        _lines(("works: ", method.suits), ("does not: ", method.limits), ("", goes_with)),
    )


def _lines(*pairs: tuple[str, str]) -> Text:
    """A line per pair, its first half dim; pairs without a second half are left out."""
    return Text("\n").join(Text.assemble((word, "dim"), said) for word, said in pairs if said)
