from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import pytest
from tests.report.page import Page

from covey.report import render_html, report_data
from covey.simulation import History

VERSIONS = {"covey": "0.1.0", "torch": "2.13.0"}


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures empty where only the page around them matters: drawing takes seconds."""
    monkeypatch.setattr("covey.report.html.draw_pictures", lambda history: {"map": b"-", "blocks": b"-"})
    monkeypatch.setattr("covey.report.html.draw_panel", lambda history, name: None)
    monkeypatch.setattr("covey.report.html.png", lambda figure: b"-")


@pytest.fixture(scope="module")
def page(history: History) -> str:
    return render_html(history, versions=VERSIONS)


def test_the_page_is_whole_and_loads_nothing(page: str) -> None:
    parsed = Page(page)
    assert parsed.open == []
    assert parsed.loads
    assert all(source.startswith("data:image/png;base64,") for source in parsed.loads)
    assert not re.search(r"(url\(|@import|https?://)", re.sub(r"base64,[^\"]+", "", page))
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page


def test_only_the_scripts_and_styles_of_the_page_may_run(page: str) -> None:
    parsed = Page(page)
    allowed = dict(re.findall(r"([a-z-]+) ([^;]+)", parsed.rules))
    for kind in ("script", "style"):
        hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in parsed.blocks[kind]]
        assert allowed[f"{kind}-src"].split() == hashes
    assert allowed["default-src"] == "'none'"
    assert "unsafe" not in parsed.rules
    # Neither handlers nor styles in attributes, which these rules would block.
    assert parsed.handlers == []


def test_the_licence_of_the_chart_library_travels_with_it(page: str) -> None:
    assert "Copyright (c) 2022 Leon Sorokin" in Page(page).blocks["script"][0]


def test_every_picture_and_every_plot_has_an_alternative_text(page: str) -> None:
    parsed = Page(page)
    assert len(parsed.alternatives) == 10
    assert len(parsed.plots) == 12
    assert all(len(text) > 20 for text in [*parsed.alternatives, *parsed.plots.values()])
    assert "group 0 from" in parsed.plots["loss"].lower()


def test_the_page_holds_the_data_it_draws_and_no_other(page: str, history: History) -> None:
    assert Page(page).data == json.loads(json.dumps(report_data(history)))


def test_every_section_says_what_it_means(page: str) -> None:
    assert page.count("<h3>What this means</h3>") == 6


def test_privacy_notes_are_the_first_words(page: str, history: History) -> None:
    text = Page(page).text
    assert text.strip().startswith("Privacy of this run")
    assert text.index(history.notes[0]) < text.index("covey report")


def test_settings_versions_and_how_to_repeat(page: str) -> None:
    text = Page(page).text
    assert "covey run scenario.toml --policy greedy --rounds 15 --seed 0 --out again" in text
    assert "[network]" in text
    assert "2.13.0" in text


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", "</script><script>alert(1)</script>", "<!--<script>"])
def test_everything_a_user_can_name_is_escaped(make_history: Callable[..., History], evil: str) -> None:
    history = make_history(
        rounds=1,
        policy=evil,
        scenario={"name": evil, "description": evil, "data": {"path": evil}},
    )
    page = render_html(history, versions={evil: evil})
    assert evil not in page
    parsed = Page(page)
    assert parsed.open == []
    # Two scripts and the data, as on any page.
    assert parsed.tags.count("script") == 3
    assert parsed.text.count(evil) >= 5
    assert parsed.data["name"] == evil


@pytest.mark.usefixtures("no_pictures")
def test_undefined_and_infinite_values_are_words(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=2, scenario={"privacy": {"noise": "off"}})
    nothing = float("nan")
    history.records[-1] = replace(
        history.records[-1], task_loss=[nothing] * 4, task_accuracy=[nothing] * 4, clipped_fraction=nothing
    )
    text = Page(render_html(history, versions=VERSIONS)).text
    assert not re.search(r"\b(nan|inf|None)\b", text)
    assert "unlimited" in text
    assert "none" in text


@pytest.mark.usefixtures("no_pictures")
def test_many_users_fold_away(make_history: Callable[..., History]) -> None:
    text = Page(render_html(make_history(users=60, rounds=2), versions=VERSIONS)).text
    assert "Distribution over 60 users" in text
    assert "All 60 users" in text


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("played", [0, 2])
def test_interrupted_runs_say_so(make_history: Callable[..., History], played: int) -> None:
    parsed = Page(render_html(make_history(rounds=5, played=played), versions=VERSIONS))
    assert parsed.open == []
    assert f"interrupted after {played} of 5 rounds" in parsed.text
    assert ("No round was played" in parsed.text) == (played == 0)
    assert "[network]" in parsed.text


@pytest.mark.usefixtures("no_pictures")
def test_secret_noise_does_not_promise_equal_bits(make_history: Callable[..., History]) -> None:
    text = Page(render_html(make_history(rounds=1, scenario={"privacy": {"noise": "secure"}}), versions={})).text
    assert "bit by bit" not in text
