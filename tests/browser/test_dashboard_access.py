"""Who can use the dashboard: with a token, from another page, on a phone, by keyboard alone."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.browser.conftest import Open, served, show, until

from covey.dashboard.scenario_keys import Settings

pytestmark = pytest.mark.browser

TOKEN = "a-token-for-the-browser"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PAGES = ["runs", "run?id=one", "compare?id=one&id=two", "new", "new?kind=training", "playground"]
#: What is there once a page is complete.
COMPLETE = {
    "runs": "tbody tr:nth-child(2)",
    "run": "[data-panel=delay] .keys",
    "compare": "[data-panel=epsilon_max] .keys",
    "new": ".command code:not(:empty)",
    "playground": ".policies td",
}


def test_a_token_is_asked_for_refused_and_accepted(browser: Any, runs: Path) -> None:
    with served(Settings(runs, token=TOKEN)) as address:
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        assert "needs a token" in page.inner_text("[role=alert]")
        page.fill("#token", "wrong")
        page.click("button")
        page.wait_for_selector("text=That is not the token.")
        page.fill("#token", TOKEN)
        page.click("button")
        page.wait_for_selector("tbody tr")
        assert "one" in page.inner_text("tbody")
        context.close()
        linked = browser.new_context()
        page = linked.new_page()
        page.goto(f"{address}login?token={TOKEN}")
        page.wait_for_selector("tbody tr")
        assert "token" not in page.url
        assert page.evaluate("document.cookie") == ""
        linked.close()


class _Elsewhere(BaseHTTPRequestHandler):
    """A page of another origin, without any rules of its own."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!DOCTYPE html><title>elsewhere</title>")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_pages_of_other_origins_get_nothing(browser: Any, address: str, runs: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    # Another port is another origin.
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as other, ExitStack() as threads:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        threads.callback(other.shutdown)
        page.goto(f"http://127.0.0.1:{other.server_address[1]}/")
        for options in ("{}", "{ mode: 'no-cors' }", "{ method: 'POST', mode: 'no-cors', body: '{}' }"):
            asked = f"fetch('{address}api/{'start' if 'POST' in options else 'entries'}', {options})"
            assert page.evaluate(f"{asked}.then(() => 'answered').catch(() => 'refused')") == "refused", options
        page.evaluate(
            f"document.body.innerHTML = `<form method=post enctype=text/plain action='{address}api/start'></form>`"
        )
        with page.expect_navigation() as sent:
            page.evaluate("document.forms[0].submit()")
        assert sent.value.status == 403
    assert {path.name for path in runs.iterdir()} == {"one", "two"}
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_every_page_without_scrolling_sideways(address: str, open_page: Open, name: str) -> None:
    page = show(open_page, address, name, width=390, height=800, has_touch=True, color_scheme="dark")
    page.wait_for_selector(COMPLETE[name.partition("?")[0]])
    assert page.evaluate(SIDEWAYS) == 0


@pytest.mark.parametrize("name", PAGES)
def test_every_control_can_be_reached_and_seen_by_tab(address: str, open_page: Open, name: str) -> None:
    page = show(open_page, address, name)
    page.wait_for_selector(COMPLETE[name.partition("?")[0]])
    until(page, "!document.querySelector('button:disabled')")
    kinds = ("a[href]", "input", "select", "button", "summary", "[tabindex='0']")
    wanted = page.locator(", ".join(f"{kind}:visible" for kind in kinds)).count()
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        place, outline = page.evaluate(
            "[[...document.querySelectorAll('*')].indexOf(document.activeElement),"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        if page.evaluate("document.activeElement !== document.body"):
            reached.add(place)
            assert outline == "solid", page.evaluate("document.activeElement.outerHTML")
    assert len(reached) >= wanted
