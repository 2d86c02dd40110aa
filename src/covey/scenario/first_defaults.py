"""Values that options had when results were first kept, so that a changed default changes no earlier key.

Digests of scenarios leave out what stands at its default, so that a new option keeps the digest of older results. A
default that changes later must not make older results those of the new one: what counts is its first value.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

#: First values of options whose default has changed since, by section.
CHANGED: dict[str, dict[str, Any]] = {"clustering": {"rescue": False, "start": "random"}}

#: Overrides of a run that starts as in the paper: models and tasks are drawn, and no model is offered later.
PAPER_START = ("clustering.start=random", "clustering.rescue=false")


def first_default(section: BaseModel, option: str) -> Any:
    """The value that an option of a section of a scenario had at first."""
    return CHANGED.get(type(section).__name__.lower(), {}).get(option, type(section).model_fields[option].default)


def differing(scenario: BaseModel) -> dict[str, Any]:
    """What a scenario sets differently from the first defaults, by section; ready for JSON."""
    given: dict[str, Any] = scenario.model_dump(mode="json", exclude_defaults=True)
    for name, options in CHANGED.items():
        section = getattr(scenario, name, None)
        if section is None:
            continue
        values = {key: value for key, value in given.get(name, {}).items() if key not in options}
        values |= {key: getattr(section, key) for key, first in options.items() if getattr(section, key) != first}
        given = {key: value for key, value in given.items() if key != name} | ({name: values} if values else {})
    return given
