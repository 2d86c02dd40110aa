"""Size of the reports, and how fast Chromium opens them and moves through the rounds.

python benchmarks/report_size.py                  # a few minutes; needs Chromium and the extra `browser`
python benchmarks/report_size.py --pages FOLDER   # keeps the pages there, and reuses existing ones
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from covey.agents.settings import LearnerSettings
from covey.agents.training import Trainer
from covey.files import versions
from covey.report import render_html, write_training_report
from covey.scenario import load_scenario
from covey.simulation import simulate

RESULTS = Path(__file__).with_name("report_size.json")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
#: Repetitions, each in an empty profile; the median counts.
TIMES = 5
#: Moves the slider through all positions; milliseconds from the event until everything is redrawn.
MOVES = """async () => {
  const slider = document.querySelector("#player input");
  const spent = [];
  for (let at = 0; at <= Number(slider.max); at += 1) {
    slider.value = at;
    // Called first and last in the next frame, around the drawing.
    const started = new Promise((done) => requestAnimationFrame(() => done(performance.now())));
    slider.dispatchEvent(new Event("input"));
    const ended = new Promise((done) => requestAnimationFrame(() => done(performance.now())));
    spent.push((await ended) - (await started));
  }
  return spent;
}"""


def write_small(path: Path) -> dict[str, Any]:
    """The preset `quick`."""
    history = simulate(load_scenario("quick"))
    path.write_text(render_html(history, versions=versions()), encoding="utf-8")
    return {"users": len(history.samples), "rounds": len(history.records)}


def write_large(path: Path) -> dict[str, Any]:
    """The preset `campus` with a thousand users with little data and a cheap identification rule."""
    changes = [
        "network.users=1000", "clustering.rule=loss", "data.samples_min=20", "data.samples_max=40",
        "data.test_samples=20",
    ]  # fmt: skip
    history = simulate(load_scenario("campus", changes), "nearest")
    path.write_text(render_html(history, versions=versions()), encoding="utf-8")
    return {"users": len(history.samples), "rounds": len(history.records)}


def write_training(path: Path) -> dict[str, Any]:
    """A short training on the preset `quick`."""
    settings = LearnerSettings(epochs=100, networks=4, updates=8, validate_every=10, validation=4)
    trainer = Trainer(load_scenario("quick"), settings)
    while not trainer.done:
        trainer.run_epoch()
    with tempfile.TemporaryDirectory() as folder:
        written = write_training_report(
            trainer.rows, settings, trainer.scenario, Path(folder), seed=0, learning="surrogate", versions=versions()
        )
        shutil.copy(written[-1], path)
    return {"epochs": settings.epochs}


PAGES = {"small": write_small, "large": write_large, "training": write_training}


def make_pages(folder: Path) -> dict[str, dict[str, Any]]:
    """Write the missing pages, each with its metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, write in PAGES.items():
        page, note = folder / f"{name}.html", folder / f"{name}.json"
        if not note.exists():
            print(f"making {page.name} ...", file=sys.stderr)
            note.write_text(json.dumps(write(page)), encoding="utf-8")
        found[name] = json.loads(note.read_text(encoding="utf-8"))
    return found


def measure(browser: Any, page: Path) -> dict[str, float]:
    """Size of a page, milliseconds until it is drawn, and milliseconds to redraw after a slider move."""
    opened, moves = [], []
    for turn in range(TIMES):
        context = browser.new_context(viewport={"width": 1200, "height": 900})
        tab = context.new_page()
        tab.set_default_timeout(120_000)
        tab.goto(page.as_uri())
        tab.wait_for_function("() => performance.getEntriesByName('covey:drawn').length > 0")
        opened.append(tab.evaluate("performance.getEntriesByName('covey:drawn')[0].startTime"))
        if turn == 0:
            moves = tab.evaluate(MOVES)
        context.close()
    return {
        "bytes": page.stat().st_size,
        "open_ms": round(statistics.median(opened)),
        "move_ms": round(statistics.median(moves), 1),
    }


def sentence(report: dict[str, Any]) -> str:
    """The results as a sentence for docs/commands.md."""
    small, large, training = (report["pages"][name] for name in PAGES)
    return (
        f"A report of {small['users']} users and {small['rounds']} rounds takes {_size(small)} and is drawn"
        f" {_time(small)} after it was opened; one of {large['users']:,} users and {large['rounds']} rounds takes"
        f" {_size(large)} and {_time(large)}, and a move of its slider {large['move_ms']:.0f} ms; one of a training of"
        f" {training['epochs']} epochs takes {_size(training)} and {_time(training)}."
    )


def _size(page: dict[str, Any]) -> str:
    return f"{page['bytes'] / 1e6:.1f} MB"


def _time(page: dict[str, Any]) -> str:
    return f"{page['open_ms'] / 1e3:.1f} s"


def main() -> None:
    """Create the pages, measure them, write the results and print the sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, help="folder of the pages; a temporary one when not given")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file for the results")
    given = parser.parse_args()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("the package playwright is missing; install it with pip install covey[browser]")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("Chromium is missing; install it, on Debian with apt-get install chromium")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as driver:
        folder = (given.pages or Path(temporary)).resolve()
        about = make_pages(folder)
        browser = driver.chromium.launch(executable_path=program, args=FLAGS)
        pages = {name: about[name] | measure(browser, folder / f"{name}.html") for name in PAGES}
        machine = {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 2), "chromium": browser.version}
        browser.close()
    report = {"machine": machine, "pages": pages}
    given.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(sentence(report))


if __name__ == "__main__":
    main()
