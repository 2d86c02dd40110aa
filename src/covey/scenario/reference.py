"""The scenario reference page, generated from the schema: `python -m covey.scenario.reference`."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from covey.scenario.load import PRESETS
from covey.scenario.schema import Scenario


def schema_reference() -> str:
    """The scenario reference as Markdown: every key, its type, default and meaning."""
    lines = [
        "# Scenario reference",
        "",
        "Generated from the schema; regenerate with `python -m covey.scenario.reference > docs/scenario.md`.",
        "Numbers of tasks, stations, users, blocks and classes start at 0. Unknown keys are errors.",
        "",
        "Presets: " + ", ".join(f"`{name}`" for name in PRESETS) + ". A scenario file may leave out any key;",
        "it then has the default below. Override single keys with `--set section.key=value`;",
        "`--set section.key=default` resets a key to the default below.",
    ]
    top = [(n, f) for n, f in Scenario.model_fields.items() if not _is_section(f.annotation)]
    lines += ["", "## Top level", "", *fields_table(top)]
    for name, field in Scenario.model_fields.items():
        if _is_section(field.annotation):
            section = typing.cast(type[BaseModel], field.annotation)
            doc = (section.__doc__ or "").strip()
            lines += ["", f"## [{name}]", "", doc, "", *fields_table(list(section.model_fields.items()))]
    return "\n".join(lines) + "\n"


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def fields_table(fields: Sequence[tuple[str, Any]]) -> list[str]:
    """Rows of a Markdown table of a model's fields: key, type, default, meaning."""
    rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in fields:
        default = "none" if field.default is None else json.dumps(field.default)
        rows.append(
            f"| `{name}` | {_type_name(field.annotation)}{_range(field.metadata)} | `{default}` | {field.description} |"
        )
    return rows


def _type_name(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return "one of " + ", ".join(f"`{a}`" for a in arguments)
    if origin is typing.Annotated:
        return _type_name(arguments[0]) + _range(arguments[1:])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_name(a) for a in arguments if a is not type(None))
    if origin is tuple:
        return "list of " + _type_name(arguments[0])
    if origin is dict:
        return "table of " + _type_name(arguments[1])
    return {"str": "text", "float": "number", "int": "integer", "bool": "true or false"}.get(
        getattr(annotation, "__name__", ""), str(annotation)
    )


def _range(metadata: Sequence[Any]) -> str:
    """The values that a number can take, as text behind its type; empty where it has no bounds."""
    found = {}
    for item in (inner for outer in metadata for inner in getattr(outer, "metadata", [outer])):
        for name, word in (("ge", ""), ("gt", "above "), ("le", "to "), ("lt", "to below ")):
            if getattr(item, name, None) is not None:
                value = getattr(item, name)
                found[name[0]] = word + (f"{value:,}" if isinstance(value, int) else f"{value:g}")
    if "l" not in found and found.get("g", "").replace(",", "").isdigit():
        found["g"] = f"at least {found['g']}"
    return f" ({' '.join(found[side] for side in 'gl' if side in found)})" if found else ""


if __name__ == "__main__":
    print(schema_reference(), end="")
