"""The page of all methods, from what they say of themselves: `python -m covey.identification.page`."""

from __future__ import annotations

from collections.abc import Sequence

from covey.identification.methods import Method, methods

_HEAD = """# Methods

Every way in which users find their task, and every way in which they announce it, from what the parts themselves
declare; regenerate with `python -m covey.identification.page > docs/methods.md`. On the command line, with parts of
installed packages too:

```sh
covey methods
covey methods --json
```

A rule (`clustering.rule`) says how tasks are found; where users tell something for it, `privacy.identity` says how that
leaves a device. K is the number of tasks. A pass is a forward and a backward pass of one sample through one model; a
forward pass alone counts a third. rho adds up over announcements ([privacy](privacy.md)); how often users announce is
`clustering.announce_every` and `clustering.announce_rounds`. How well rules find the groups is measured on
[the page on clustering](clustering.md), charged announcements on [the page on identities](identities.md).
"""


def methods_page() -> str:
    """docs/methods.md: a table of the rules and one of the announcements, and a paragraph for each."""
    found = methods(builtin=True)
    lines = [_HEAD]
    for kind, title, partner in (("rule", "Rules", "announcements"), ("announcement", "Announcements", "rules")):
        chosen = [method for method in found if method.kind == kind]
        lines += [f"## {title}", "", *_table(chosen), ""]
        for method in chosen:
            lines += _section(method, partner)
    return "\n".join(lines).rstrip() + "\n"


def _table(chosen: Sequence[Method]) -> list[str]:
    rows = ["| name | from | rho | extra on the air | passes |", "| --- | --- | --- | --- | --- |"]
    rows += [f"| `{one.name}` | {one.paper} | {one.rho} | {one.air} | {one.passes} |" for one in chosen]
    return rows


def _section(method: Method, partner: str) -> list[str]:
    lines = [f"### {method.name}", "", method.about, ""]
    lines += [
        f"* A user computes: {method.computes}.",
        f"* Who sees what: {method.sees}.",
        f"* Works: {method.suits}.",
        f"* Does not: {method.limits}.",
    ]
    if method.goes_with:
        lines.append(f"* Goes with the {partner} {', '.join(f'`{name}`' for name in method.goes_with)}.")
    return [*lines, f"* Set it: `{method.line}`.", ""]


if __name__ == "__main__":
    print(methods_page(), end="")
