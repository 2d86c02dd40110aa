"""Takes the pictures dashboard-*.png of the page on the dashboard; needs Chromium and the extra `browser`.

python docs/images/dashboard.py                                # the pictures that are committed
python docs/images/dashboard.py --out /tmp/dark --dark         # others to look at, nothing is replaced
python docs/images/dashboard.py --out /tmp/phone --width 390
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from covey.dashboard.scenario_keys import Settings
from covey.dashboard.serve import listen, server_of

HERE = Path(__file__).parent
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
#: Milliseconds to wait for anything.
PATIENCE = 300_000
RUNS = {
    "quick-greedy": ["run", "quick", "--rounds", "15"],
    "quick-random": ["run", "quick", "--rounds", "15", "--policy", "random", "--set", "privacy.target_epsilon=2"],
    "study/large": ["run", "campus", "--rounds", "4", "--policy", "local_search", "--set", "network.users=40"],
    "quick-dpvd": ["train", "quick", "--epochs", "12", "--learner", "networks=8", "--learner", "validate_every=3"],
    "quick-iql": ["train", "quick", "--epochs", "12", "--learner", "networks=8", "--learner", "validate_every=3",
                  "--algorithm", "iql"],
}  # fmt: skip
TOKEN = "a-token-for-pictures"


def main() -> None:
    """Play a few runs, serve them and take every picture."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=HERE, help="folder of the pictures")
    options.add_argument("--runs", type=Path, help="folder of runs to keep and use again")
    options.add_argument("--dark", action="store_true", help="as on a dark screen")
    options.add_argument("--width", type=int, default=1100, help="of the page; 390 is a phone")
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        runs = given.runs or Path(scratch) / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        for name, words in RUNS.items():
            if not (runs / name / "report.html").exists():
                command = [sys.executable, "-m", "covey", *words, "--quiet", "--out", name]
                subprocess.run(command, cwd=runs, check=True)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        look = {"viewport": {"width": given.width, "height": 900}, "color_scheme": "dark" if given.dark else "light"}

        def shot(page: Page, name: str, height: int | None = None) -> None:
            page.set_viewport_size({"width": given.width, "height": height or 900})
            page.wait_for_timeout(400)  # plots follow the size of the page
            page.screenshot(path=given.out / f"dashboard-{name}.png", full_page=given.width < 600)

        with served(Settings(runs, jobs=3)) as address:
            page = browser.new_context(**look).new_page()
            page.set_default_timeout(PATIENCE)
            _take(page, address, runs, shot)
            if given.width == 1100 and not given.dark:
                phone = browser.new_context(color_scheme="dark", viewport={"width": 390, "height": 844})
                _take_phone(phone, address, given.out)
        with served(Settings(runs, token=TOKEN)) as address:
            page = browser.new_context(**look).new_page()
            page.goto(address)
            shot(page, "token", 400)
        browser.close()


def _take(page: Page, address: str, runs: Path, shot: Callable[..., None]) -> None:
    shutil.rmtree(runs / "live", ignore_errors=True)
    _post(address, "start", {"name": "live", "rounds": 400})
    page.goto(f"{address}#/run?id=live")
    page.wait_for_selector("[data-panel=loss] .keys")
    page.wait_for_function("() => document.querySelector('.line progress')?.value >= 20")
    shot(page, "live", 1250)
    page.goto(f"{address}#/runs")
    page.wait_for_selector(f"tbody tr:nth-child({len(RUNS) + 1})")
    shot(page, "list", 520)
    page.goto(f"{address}#/run?id=live")
    page.click("button:has-text('Stop')")
    page.wait_for_selector("button:has-text('Resume')")
    shot(page, "stopped", 360)
    page.goto(f"{address}#/run?id=quick-dpvd")
    page.wait_for_selector("[data-panel=loss] .keys")
    page.wait_for_selector("text=Open the report")
    shot(page, "training", 1150)
    page.goto(f"{address}#/compare?id=quick-greedy&id=quick-random")
    page.wait_for_selector("[data-panel=epsilon_max] .keys")
    page.wait_for_selector("text=settings differ")
    shot(page, "compare", 1400)
    page.goto(f"{address}#/new")
    page.wait_for_selector(".command code:not(:empty)")
    page.fill("#field-network-tasks", "20")
    page.fill("#field-privacy-v_max", "-1")
    page.wait_for_selector(".alert:visible")
    shot(page, "form", 1250)
    page.goto(f"{address}#/playground")
    page.wait_for_selector(".policies td")
    page.select_option("#pick", "u0")
    for _ in range(8):
        page.press(".playground-map > canvas", "Shift+ArrowDown")
    page.wait_for_function("() => document.querySelector('.policies') && !document.querySelector('td.old')")
    shot(page, "playground", 1560)


def _take_phone(context: Any, address: str, out: Path) -> None:
    page = context.new_page()
    page.goto(f"{address}#/run?id=quick-greedy")
    page.wait_for_selector("[data-panel=loss] .keys")
    page.wait_for_timeout(400)
    page.screenshot(path=out / "dashboard-phone.png")


def _post(address: str, path: str, body: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{address}api/{path}", json.dumps(body).encode(), headers))


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """The address of a dashboard."""
    addresses: list[str] = []
    ready = threading.Event()
    listening = listen("127.0.0.1", 0)
    server = server_of(settings, listening, lambda address: (addresses.append(address), ready.set())[0])
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    ready.wait()
    yield addresses[0].partition("login")[0]
    server.should_exit = True
    thread.join(timeout=60)
    listening.close()


if __name__ == "__main__":
    main()
