from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from covey.report import render_html
from covey.simulation import History

VERSIONS = {"covey": "0.1.0", "torch": "2.13.0"}
VOID = {"meta", "img", "br", "link"}


class _Page(HTMLParser):
    """Checks that tags are balanced and keeps what a browser would load or show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.alternatives: list[str] = []
        self.tags: list[str] = []
        self.shown: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        self.loads += [value for key in ("src", "href") if (value := found.get(key))]
        if tag == "img":
            self.alternatives.append(found.get("alt") or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.shown.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.shown)


@pytest.fixture(scope="module")
def page(history: History) -> str:
    return render_html(history, versions=VERSIONS)


def test_the_page_is_whole_and_loads_nothing(page: str) -> None:
    parsed = _Page(page)
    assert parsed.open == []
    assert "script" not in parsed.tags
    assert parsed.loads
    assert all(source.startswith("data:image/png;base64,") for source in parsed.loads)
    assert not re.search(r"(url\(|@import|https?://)", re.sub(r"base64,[^\"]+", "", page))
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page


def test_every_picture_has_an_alternative_text(page: str) -> None:
    alternatives = _Page(page).alternatives
    assert len(alternatives) == 10
    assert all(len(text) > 20 for text in alternatives)


def test_privacy_notes_are_the_first_words(page: str, history: History) -> None:
    text = _Page(page).text
    assert text.strip().startswith("Privacy of this run")
    assert text.index(history.notes[0]) < text.index("covey report")


def test_settings_versions_and_how_to_repeat(page: str) -> None:
    text = _Page(page).text
    assert "covey run scenario.toml --policy greedy --rounds 15 --seed 0 --out again" in text
    assert "[network]" in text
    assert "2.13.0" in text


def test_everything_a_user_can_name_is_escaped(make_history: Callable[..., History]) -> None:
    evil = "<script>alert(1)</script>"
    history = make_history(
        rounds=1,
        policy=evil,
        scenario={"name": evil, "description": evil, "data": {"name": evil}, "model": {"name": f'"{evil}'}},
    )
    page = render_html(history, versions={evil: evil})
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 8
    assert "script" not in _Page(page).tags


def test_undefined_and_infinite_values_are_words(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=2, scenario={"privacy": {"noise": "off"}})
    nothing = float("nan")
    history.records[-1] = replace(
        history.records[-1], task_loss=[nothing] * 4, task_accuracy=[nothing] * 4, clipped_fraction=nothing
    )
    text = _Page(render_html(history, versions=VERSIONS)).text
    assert not re.search(r"\b(nan|inf|None)\b", text)
    assert "unlimited" in text
    assert "none" in text


def test_many_users_fold_away(make_history: Callable[..., History]) -> None:
    text = _Page(render_html(make_history(users=60, rounds=2), versions=VERSIONS)).text
    assert "Distribution over 60 users" in text
    assert "All 60 users" in text


@pytest.mark.parametrize("played", [0, 2])
def test_interrupted_runs_say_so(make_history: Callable[..., History], played: int) -> None:
    parsed = _Page(render_html(make_history(rounds=5, played=played), versions=VERSIONS))
    assert parsed.open == []
    assert f"interrupted after {played} of 5 rounds" in parsed.text
    assert ("No round was played" in parsed.text) == (played == 0)
    assert "[network]" in parsed.text


def test_secret_noise_does_not_promise_equal_bits(make_history: Callable[..., History]) -> None:
    text = _Page(render_html(make_history(rounds=1, scenario={"privacy": {"noise": "secure"}}), versions={})).text
    assert "bit by bit" not in text
