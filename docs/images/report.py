"""Takes the picture report.png: the report of `covey run quick` in round 12. Needs Chromium and the extra `browser`.

python docs/images/report.py                      # plays the run first
python docs/images/report.py --page report.html   # of a page that is there already
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from covey.files import versions
from covey.report import render_html
from covey.scenario import load_scenario
from covey.simulation import simulate

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
WIDTH = 1120
ROUND = 12
#: Milliseconds to wait for anything.
PATIENCE = 120_000


def main() -> None:
    """Take the picture from the slider down to the blocks."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--page", type=Path, help="a report of `covey run quick`")
    options.add_argument("--out", type=Path, default=Path(__file__).with_name("report.png"), help="the picture")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        path = given.page or Path(scratch) / "report.html"
        if given.page is None:
            path.write_text(render_html(simulate(load_scenario("quick")), versions=versions()), encoding="utf-8")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.set_default_timeout(PATIENCE)
        page.goto(path.resolve().as_uri())
        page.wait_for_function("() => performance.getEntriesByName('covey:drawn').length > 0")
        slider = page.locator("#player input")
        slider.press("Home")
        for _ in range(ROUND - 1):
            slider.press("ArrowRight")
        page.locator("output[for=choose-round]", has_text=f"{ROUND} of ").wait_for()
        slider.evaluate("element => element.blur()")
        top = page.locator("#player").bounding_box()
        end = page.locator("#blocks").bounding_box()
        shift = page.evaluate("scrollY")
        area = {"x": 0, "y": top["y"] + shift - 8, "width": WIDTH, "height": end["y"] + end["height"] - top["y"] + 10}
        page.screenshot(path=given.out, full_page=True, clip=area)
        browser.close()


if __name__ == "__main__":
    main()
