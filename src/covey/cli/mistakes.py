"""Mistakes on the command line, as typer raises them: since version 0.26 it has click inside, before it imports it."""

from __future__ import annotations

from typing import Any, Final

import typer

#: Base of all errors about what was typed; every one can `show` itself.
Mistake: Final[Any] = typer.BadParameter.__mro__[2]
#: Whether typer is to suggest a command in place of a misspelt one: click does so itself, and twice is too often.
SUGGEST: Final = typer.BadParameter.__module__.startswith("typer.")
