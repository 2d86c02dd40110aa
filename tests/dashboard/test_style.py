"""Colours of the dashboard are readable on light and on dark pages."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from covey.report.palette import contrast

ASSETS = resources.files("covey.report") / "assets"
STATIC = resources.files("covey.dashboard") / "static"
#: Text and what it stands on.
TEXTS = [
    ("ink", "page"), ("ink", "card"), ("ink", "field"), ("ink", "warn"), ("muted", "page"), ("muted", "card"),
    ("muted", "field"), ("link", "page"), ("link", "card"), ("page", "link"), ("bad", "page"), ("bad", "card"),
    ("good", "page"), ("good", "card"), ("running", "page"), ("running", "card"), ("stopped", "page"),
    ("stopped", "card"),
]  # fmt: skip
#: Borders of what can be used, and marks of what has the focus.
EDGES = [("edge", "page"), ("edge", "card"), ("edge", "field"), ("link", "page"), ("bad", "field"), ("bad", "page")]
PAGES = ["light", "dark"]


def colours(page: str) -> dict[str, str]:
    """Colours by name, as the style sheets set them; dark ones replace light ones."""
    text = "".join((folder / name).read_text() for folder, name in ((ASSETS, "report.css"), (STATIC, "dashboard.css")))
    dark = re.findall(r"@media \(prefers-color-scheme: dark\) \{(.*?)\n\}", text, re.DOTALL)
    assert len(dark) == 2
    light = text
    for part in dark:
        light = light.replace(part, "")
    found = dict(re.findall(r"--([\w-]+): (#\w{6})", light))
    return found if page == "light" else found | dict(re.findall(r"--([\w-]+): (#\w{6})", "".join(dark)))


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("text", "ground"), TEXTS)
def test_text_is_readable(page: str, text: str, ground: str) -> None:
    found = colours(page)
    assert contrast(found[text], found[ground]) >= 4.5


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("edge", "ground"), EDGES)
def test_edges_and_focus_are_seen(page: str, edge: str, ground: str) -> None:
    found = colours(page)
    assert contrast(found[edge], found[ground]) >= 3.0


@pytest.mark.parametrize("page", PAGES)
def test_old_values_are_pale_but_readable(page: str) -> None:
    found = colours(page)
    share = float(re.search(r"td\.old \{ opacity: ([\d.]+)", (STATIC / "dashboard.css").read_text())[1])  # type: ignore[index]
    mixed = [
        round(share * int(found["ink"][at : at + 2], 16) + (1 - share) * int(found["page"][at : at + 2], 16))
        for at in (1, 3, 5)
    ]
    assert contrast("#" + "".join(f"{part:02x}" for part in mixed), found["page"]) >= 4.5


@pytest.mark.parametrize("page", PAGES)
def test_lines_of_comparisons_are_seen_and_differ(page: str) -> None:
    script = (STATIC / "compare.js").read_text()
    part = script[script.index(f"  {page}: [") :]
    lines = re.findall(r"#\w{6}", part[: part.index("],")])
    assert len(lines) == len(set(lines)) == 12
    for line in lines:
        assert contrast(line, colours(page)["page"]) >= 3.0, line


def test_every_style_has_a_dark_form() -> None:
    light, dark = colours("light"), colours("dark")
    assert all(light[name] != dark[name] for name in light)
