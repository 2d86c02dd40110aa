"""Bundles the JavaScript modules of `assets` into one inline script.

Browsers refuse to load modules from file:// URLs. Each module therefore becomes a function that
returns its exports, called in dependency order.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (function|const|class) (\w+)", re.MULTILINE)


def asset(name: str) -> str:
    """The content of a file in `assets`, such as "map.js" or "uplot/LICENSE"."""
    return resources.files("covey.report").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")


@cache
def joined(entry: str) -> str:
    """The module `entry` and its dependencies as one script."""
    order: list[str] = []
    _collect(entry, order, ())
    return '"use strict";\nconst modules = {};\n' + "".join(_wrapped(name) for name in order)


@cache
def chart_library() -> str:
    """uPlot with its licence text, which every copy must include."""
    script = re.sub(r"^/\*!.*?\*/\n", "", asset("uplot/uPlot.iife.min.js"), flags=re.DOTALL)
    return f"/* uPlot\n\n{asset('uplot/LICENSE').strip()}\n*/\n{script}"


def _collect(name: str, order: list[str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"circular import of modules: {' -> '.join([*above, name])}")
    for _, needed in _IMPORT.findall(asset(name)):
        if needed not in order:
            _collect(needed, order, (*above, name))
    order.append(name)


def _wrapped(name: str) -> str:
    def fetched(found: re.Match[str]) -> str:
        # `import { draw as drawMap }` is `const { draw: drawMap }`.
        return f'const {{ {found[1].replace(" as ", ": ")} }} = modules["{found[2]}"];'

    text = asset(name)
    exported = [found[1] for found in _EXPORT.findall(text)]
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(fetched, text))
    left = re.search(r"^\s*(import|export)\b.*", body, re.MULTILINE)
    if left:
        raise ValueError(f"'{left[0].strip()}' in {name} has a form that scripts.py cannot bundle")
    return f'modules["{name}"] = (() => {{\n{body.strip()}\nreturn {{ {", ".join(exported)} }};\n}})();\n'
