"""The page's scripts in one piece: modules of `assets` joined so that a page without a server can hold them.

A browser that opens a file refuses to load modules beside it. Each module therefore becomes a
function that gives what it exports, called after those that it imports from.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (function|const|class) (\w+)", re.MULTILINE)


def asset(name: str) -> str:
    """The text of a file in `assets`, such as "map.js" or "uplot/LICENSE"."""
    return resources.files("covey.report").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")


@cache
def joined(entry: str) -> str:
    """The module `entry` and all it needs as one script."""
    order: list[str] = []
    _collect(entry, order, ())
    return '"use strict";\nconst modules = {};\n' + "".join(_wrapped(name) for name in order)


@cache
def chart_library() -> str:
    """uPlot with its licence, whose text every copy must carry."""
    script = re.sub(r"^/\*!.*?\*/\n", "", asset("uplot/uPlot.iife.min.js"), flags=re.DOTALL)
    return f"/* uPlot\n\n{asset('uplot/LICENSE').strip()}\n*/\n{script}"


def _collect(name: str, order: list[str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"modules import each other in a circle: {' -> '.join([*above, name])}")
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
        raise ValueError(f"'{left[0].strip()}' in {name} has another form than scripts.py can join")
    return f'modules["{name}"] = (() => {{\n{body.strip()}\nreturn {{ {", ".join(exported)} }};\n}})();\n'
