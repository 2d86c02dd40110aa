"""Pages in a real browser; left out where Chromium or the package that drives it is missing.

`make test-browser` sets COVEY_BROWSER=required, so that they fail there instead.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.processes import LIMIT_S, family
from tests.processes import until as wait_until

from covey.cli.main import main
from covey.dashboard.scenario_keys import Settings
from covey.dashboard.serve import listen, server_of

Open = Callable[..., Any]

#: Nothing but the page: no updates, no first steps, no background traffic.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
#: Milliseconds to wait for what a busy machine does late.
PATIENCE = 300_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A Chromium without a window."""
    leave = pytest.fail if os.environ.get("COVEY_BROWSER") == "required" else pytest.skip
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        leave("the package playwright is not installed; `make test-browser` installs it and runs this")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        leave("Chromium is not installed; install it (Debian: apt-get install chromium) and run `make test-browser`")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=FLAGS, headless=True, timeout=1000 * LIMIT_S)
        try:
            yield opened
        finally:
            opened.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address in a fresh profile; errors and requests for anything else fail the test at its end.

    Ask for it after the address of a dashboard, so that pages are closed before their dashboard is.
    """
    contexts: list[Any] = []
    complaints: list[str] = []

    def opener(address: str, *, width: int = 1200, height: int = 900, allowed: str = "", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)

        def check(request: Any) -> None:
            if request.url != address and not request.url.startswith("data:") and not _below(request.url, allowed):
                complaints.append(f"request: {request.url}")

        page.on("request", check)
        page.goto(address)
        return page

    try:
        yield opener
    finally:
        for context in contexts:
            context.close()
    assert complaints == []


def _below(address: str, allowed: str) -> bool:
    return bool(allowed) and address.startswith(allowed)


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two real runs that differ in policy and noise."""
    folder = tmp_path_factory.mktemp("dashboard")
    for name, more in (("one", []), ("two", ["--policy", "random", "--set", "privacy.v_max=6"])):
        with pytest.raises(SystemExit) as ended:
            main(["run", "quick", "--rounds", "4", "--quiet", "--out", str(folder / name), *more])
        assert ended.value.code == 0
    return folder


@pytest.fixture
def runs(played: Path, tmp_path: Path) -> Path:
    """A copy of the runs that a test may change."""
    return Path(shutil.copytree(played, tmp_path / "runs"))


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """The address of a dashboard."""
    addresses: list[str] = []
    listening = listen("127.0.0.1", 0)
    server = server_of(settings, listening, addresses.append)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    with family():  # jobs end with the dashboard that started them
        try:
            wait_until(lambda: addresses)
            yield addresses[0].partition("login")[0]
        finally:
            server.should_exit = True
            thread.join(timeout=LIMIT_S)
            listening.close()


@pytest.fixture
def address(runs: Path) -> Iterator[str]:
    """The address of a dashboard of the runs, for one job at a time."""
    with served(Settings(runs, jobs=1)) as found:
        yield found


def show(open_page: Open, address: str, page: str, **options: Any) -> Any:
    """A page of the dashboard; what it loads comes from the dashboard alone, or the test fails."""
    return open_page(f"{address}#/{page}", allowed=address, **options)


def until(page: Any, expression: str) -> None:
    """Wait until an expression is true; asked from outside, because the page forbids to evaluate text."""
    wait_until(lambda: page.evaluate(expression), told=lambda: expression)
