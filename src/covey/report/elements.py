"""HTML building blocks of the reports: sections, figures, tables, and the page skeleton."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any

from covey.report.scripts import asset, chart_library, joined
from covey.report.sheets import Sheet


def document(title: str, body: Iterable[str], data: Mapping[str, Any]) -> str:
    """A self-contained page; its scripts draw `data`.

    The content security policy allows only the inline scripts and style, by hash, and no external resources.
    """
    style = asset("uplot/uPlot.min.css") + "\n" + asset("report.css")
    scripts = [chart_library(), joined("page.js")]
    allowed = " ".join(_hash(script) for script in scripts)
    rules = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {allowed};"
        " base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + f'\n</main>\n<script type="application/json" id="data">{_json(data)}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


def section(title: str, sentences: Sequence[str], *parts: str) -> str:
    """A section: an interpretation of this run, then figures and tables."""
    text = " ".join(escape(sentence) for sentence in sentences).replace(" %", "&nbsp;%")
    meaning = f'<div class="meaning"><h3>What this means</h3><p>{text}</p></div>' if text else ""
    return f"<section><h2>{escape(title)}</h2>{meaning}{''.join(parts)}</section>"


def plot(name: str, title: str, alternative: str, still: bytes | None = None, note: str = "") -> str:
    """A scripted plot; in print and without JavaScript it falls back to the image `still`, or to nothing."""
    picture = f'<img class="still" src="{source(still)}" alt="{escape(alternative)}">' if still else ""
    kind = "" if still else ' class="moving"'
    caption = f"<figcaption>{escape(note)}</figcaption>" if note else ""
    return (
        f'<figure{kind}><h3 class="moving">{escape(title)}</h3>{picture}'
        f'<div class="moving" data-plot="{escape(name)}" data-label="{escape(alternative)}"></div>{caption}</figure>'
    )


def player(noun: str) -> str:
    """Placeholder of the slider over rounds or epochs that drives the rest of the page."""
    return f'<div id="player" class="player moving" role="group" aria-label="Choose the {escape(noun)}"></div>'


def plots(*figures: str) -> str:
    """Plots side by side if the page is wide enough."""
    return f'<div class="panels">{"".join(figures)}</div>'


def picture(image: bytes, alternative: str, caption: str) -> str:
    """A wide image for print and for browsers without JavaScript."""
    return (
        f'<figure class="wide still"><div class="scroll" tabindex="0"><img src="{source(image)}"'
        f' alt="{escape(alternative)}"></div><figcaption>{escape(caption)}'
        '<span class="narrow"> Scroll the picture sideways to see all of it.</span></figcaption></figure>'
    )


def source(image: bytes) -> str:
    """A PNG as a data URL."""
    return f"data:image/png;base64,{b64encode(image).decode('ascii')}"


def table(sheet: Sheet) -> str:
    """A sheet as a horizontally scrollable table."""

    def cell(tag: str, index: int, text: str) -> str:
        kinds = [] if index < sheet.words or "right" in text or "wrong" in text or text == "identity" else ["n"]
        kinds += ["wrong"] if "wrong" in text else []
        kinds += ["sub"] if text.startswith("  ") else []
        attributes = f' class="{" ".join(kinds)}"' if kinds else ""
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{scope}{attributes}>{escape(text.strip())}</{tag}>"

    pairs = len(sheet.heads) == 2
    head = "".join(cell("th", index, text) for index, text in enumerate(sheet.heads))
    rows = "".join(
        f"<tr>{''.join(cell('td', index, text) for index, text in enumerate(row))}</tr>" for row in sheet.rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table{" class=pairs" if pairs else ""}>'
        f"<caption>{escape(sheet.title)}</caption>"
        f"{'' if pairs else f'<thead><tr>{head}</tr></thead>'}<tbody>{rows}</tbody></table></div>"
    )


def tiles(entries: Iterable[tuple[str, str, str]]) -> str:
    """Key figures as tiles: label, value, caption."""
    items = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for label, value, more in entries
    )
    return f'<dl class="tiles">{items}</dl>'


def folded(title: str, content: str) -> str:
    """A collapsible block; `content` is HTML."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def settings(scenario: str, versions: Mapping[str, str]) -> str:
    """The scenario as TOML and the software versions, collapsed."""
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(version)}</td></tr>" for name, version in versions.items())
    return folded("Scenario", f"<pre>{escape(scenario)}</pre>") + folded(
        "Versions", f"<table><tbody>{rows}</tbody></table>"
    )


def _json(data: Mapping[str, Any]) -> str:
    """JSON escaped so that it cannot close its script element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
