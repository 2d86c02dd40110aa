"""First values of options whose default has changed: results were keyed, and files written, when these were the only
ones.

Digests leave out options at their first value rather than at their default, so that a result keeps its key when a
default changes, and is never taken for one of the new default. Files that covey writes, such as policies and the
scenarios of runs, hold every option: where such an option is missing, the file is older than the change and means the
first value. Scenarios that people write mean the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

#: First values by section and option. What is in this table never changes; options are added when a default changes.
FIRST_VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "clustering": {"start": "random", "rescue": False, "turns": False}
}
#: The paper's start, as overrides: models and tasks are drawn, and nobody is offered a model.
PAPER_START: Final = ("clustering.start=random", "clustering.rescue=false")
#: The start of a scenario that says nothing about it, as overrides.
DEFAULT_START: Final = ("clustering.start=default", "clustering.rescue=default", "clustering.turns=default")


def not_at_first(scenario: BaseModel) -> dict[str, Any]:
    """The values of a scenario other than defaults; of options in `FIRST_VALUES`, those other than the first value."""
    given = scenario.model_dump(mode="json", exclude_defaults=True, exclude={"name", "description"})
    full = scenario.model_dump(mode="json")
    for section, options in FIRST_VALUES.items():
        values = given.setdefault(section, {})
        for option, first in options.items():
            values.pop(option, None)
            if full[section][option] != first:
                values[option] = full[section][option]
        if not values:  # as a section at its defaults
            del given[section]
    return given


def with_first_values(table: Mapping[str, Any]) -> dict[str, Any]:
    """The nested dictionary of a whole scenario from a file, with first values for options that it does not mention."""
    sections = {section: table.get(section, {}) for section in FIRST_VALUES}
    # What is no section is left to validation.
    whole = {name: {**FIRST_VALUES[name], **given} for name, given in sections.items() if isinstance(given, Mapping)}
    return {**table, **whole}
