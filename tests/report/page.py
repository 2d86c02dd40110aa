"""Web pages as a browser meets them."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """Checks that tags are balanced and keeps what a browser would load, run or show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.alternatives: list[str] = []
        self.tags: list[str] = []
        self.shown: list[str] = []
        self.blocks: dict[str, list[str]] = {"script": [], "style": [], "json": []}
        self.handlers: list[str] = []
        self.plots: dict[str, str] = {}
        self.rules = ""
        self._kind = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        self.loads += [value for key in ("src", "href") if (value := found.get(key))]
        self.handlers += [key for key in found if key.startswith("on") or key == "style"]
        if tag == "img":
            self.alternatives.append(found.get("alt") or "")
        if name := found.get("data-plot"):
            self.plots[name] = found.get("data-label") or ""
        if found.get("http-equiv") == "Content-Security-Policy":
            self.rules = found["content"] or ""
        if tag in ("script", "style"):
            self._kind = "json" if found.get("type") == "application/json" else tag
            self.blocks[self._kind].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.blocks[self._kind][-1] += data
        elif self.open and self.open[-1] != "title":
            self.shown.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.shown)

    @property
    def data(self) -> dict[str, Any]:
        """The one block of data."""
        (block,) = self.blocks["json"]
        found: dict[str, Any] = json.loads(block)
        return found
