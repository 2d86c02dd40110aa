"""Sphinx settings: the site is made of the Markdown pages in this folder and of the docstrings of covey.

`make docs` builds it. The pages are written for a code host as well, so what only the site needs is done here: the
navigation comes from the links of index.md, and docstrings are read as plain text with `code` in it.
"""

from __future__ import annotations

import posixpath
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

import covey

DOCS = Path(__file__).parent

project = "covey"
author = "The covey authors"
project_copyright = author
release = version = metadata.version("covey")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["images/*.py"]
nitpicky = False

myst_heading_anchors = 4
myst_links_external_new_tab = False

html_theme = "furo"
html_title = f"covey {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

#: Files outside this folder that have a page in the site, and the pages, which do nothing but include them.
INCLUDED = {
    "../CONTRIBUTING.md": "contributing.md",
    "../CHANGELOG.md": "changelog.md",
    "../examples/parts/README.md": "parts.md",
}
#: Pages that a checkout may lack; links to them are then plain text.
MADE_LATER = ("results.md", "dashboard.md")
#: Types of arrays as Sphinx spells them out, and as the code names them.
ARRAYS = {
    r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]": r"NDArray[\1]",
    r"_Buffer \| _SupportsArray\[.*?\| _NestedSequence\[complex \| bytes \| str\]": "ArrayLike",
}


def setup(app: Sphinx) -> None:
    """Connect the few hooks below."""
    app.connect("source-read", with_what_is_included)
    app.connect("source-read", with_links_inside)
    app.connect("source-read", with_navigation)
    app.connect("autodoc-process-docstring", as_plain_text)
    app.connect("autodoc-process-signature", with_defaults_that_parse)
    app.connect("autodoc-skip-member", documented_once)
    app.connect("doctree-resolved", with_short_types)


def with_what_is_included(app: Sphinx, page: str, source: list[str]) -> None:
    """The text of an included file in place of the directive, with links that lead to the same files from here."""
    files = {included: file for file, included in INCLUDED.items()}
    if (file := files.get(f"{page}.md")) is None:
        return
    folder = posixpath.join(DOCS.name, posixpath.dirname(file))

    def from_here(link: re.Match[str]) -> str:
        return f"]({posixpath.relpath(posixpath.join(folder, link[1]), DOCS.name)})"

    app.env.note_dependency(str(DOCS / file))
    text = (DOCS / file).read_text(encoding="utf-8")
    source[0] = re.sub(r"\]\((?!#|\w+:)([^)]+)\)", from_here, text)


def with_links_inside(app: Sphinx, page: str, source: list[str]) -> None:
    """Links to files that the site includes lead to its pages; links to pages that are not there become their text."""
    for file, included in INCLUDED.items():
        source[0] = source[0].replace(f"]({file}", f"]({included}")
    for name in MADE_LATER:
        if not (DOCS / name).exists():
            source[0] = re.sub(rf"\[([^]]+)\]\({re.escape(name)}[^)]*\)", r"\1", source[0])


def with_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """A part of the navigation for each section of index.md: its links, in their order and with their names."""
    if page != "index":
        return
    trees = []
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        entries = [f"{name} <{link}>" for name, link in re.findall(r"\[([^]]+)\]\(([\w/-]+)\.(?:md|rst)\)", text)]
        if entries:
            trees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *entries, "```"]))
    source[0] += "\n" + "\n\n".join(trees) + "\n"


def as_plain_text(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: outside of `code` no sign has a meaning, and `name: text` lines are a list."""
    paragraphs = re.split(r"\n(?=\s*\n)", "\n".join(lines))
    lines[:] = "\n".join(_escaped(_as_list(paragraph)) for paragraph in paragraphs).split("\n")


def _as_list(paragraph: str) -> str:
    """A paragraph of lines that begin with `name: ` or `name  `, or are indented, as a list; others as they are."""
    rows = paragraph.strip("\n").split("\n")
    indents = [len(row) - len(row.lstrip()) for row in rows]
    # A first line with the rest indented below it is the title of the list.
    title, rows = (rows[:1], rows[1:]) if len(rows) > 2 and indents[1] > indents[0] else ([], rows)
    indent = indents[len(title)]
    heads = [re.match(r"(\w+(?:, \w+)*)(?::| {2}) *(?=\S)", row[indent:]) for row in rows]
    continued = [row[: indent + 1].isspace() for row in rows]
    if len(rows) < 2 or not heads[0] or not all(head or more for head, more in zip(heads, continued, strict=True)):
        return paragraph
    items = [
        f"- `{head[1]}`: {row[indent + head.end() :]}" if head else f"  {row.strip()}"
        for head, row in zip(heads, rows, strict=True)
    ]
    return "\n".join(["", *title, *(" " * indent + item for item in items)])


def _escaped(paragraph: str) -> str:
    """Stars, bars and underscores outside of `code` with a backslash before them."""
    parts = re.split(r"(`[^`]*`)", paragraph)
    return "".join(part if part.startswith("`") else re.sub(r"([*|_])", r"\\\1", part) for part in parts)


def with_defaults_that_parse(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, arguments: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Defaults that a dataclass makes anew are dots: Sphinx cannot read a signature with `<factory>` in it."""
    return arguments and arguments.replace("<factory>", "..."), returned


def documented_once(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """What `import covey` gives is described on the page of `covey`, not again on that of its package."""
    top = [getattr(covey, public) for public in covey.__all__]
    if app.env.docname != "reference/covey" and what == "module" and any(obj is value for value in top):
        return True
    return None


def with_short_types(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Arrays in signatures by the names that the code has for them, not by what these stand for."""
    signatures = list(doctree.findall(addnodes.desc_signature))
    for part in [part for signature in signatures for part in signature.findall(nodes.Element)]:
        for long, short in ARRAYS.items():
            while match := re.search(long, "".join(child.astext() for child in part.children)):
                ends = [0]  # where each child begins in the text, and where the last ends
                for child in part.children:
                    ends.append(ends[-1] + len(child.astext()))
                if match.start() not in ends or match.end() not in ends:
                    break  # it is inside one child, whose turn comes
                first, last = ends.index(match.start()), ends.index(match.end())
                part.children[first:last] = []
                part.insert(first, nodes.Text(match.expand(short)))
