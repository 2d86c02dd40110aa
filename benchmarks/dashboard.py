"""Latency of the dashboard: start, a list of a hundred runs, runs of 12 and 1,000 users, and the playground.

python benchmarks/dashboard.py                 # a few minutes; needs Chromium and the extra `browser`
python benchmarks/dashboard.py --runs FOLDER   # keeps the runs there, and reuses existing ones
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from covey.files import versions

RESULTS = Path(__file__).with_name("dashboard.json")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
#: Repetitions, pages each time in an empty profile; the median counts.
TIMES = 3
#: Requests per dashboard.
QUESTIONS = 20
#: Number of runs in the listed folder.
LISTED = 100
#: The campus preset with a thousand users with little data, as in report_size.py.
LARGE = [
    "campus", "--rounds", "12", "--policy", "nearest", "--set", "network.users=1000", "--set", "data.samples_min=20",
    "--set", "data.samples_max=40", "--set", "data.test_samples=20",
]  # fmt: skip
#: Pages: their URL, and a selector that matches once they are complete.
PAGES = {
    "list_of_100_runs": ("runs", f"tbody tr:nth-child({LISTED})"),
    "run_of_12_users": ("run?id=small", "[data-panel=delay] .keys"),
    "run_of_1000_users": ("run?id=large", "[data-panel=delay] .keys"),
    "comparison_of_2_runs": ("compare?id=small&id=run0", "[data-panel=epsilon_max] .keys"),
    "playground_of_12_users": ("playground", ".policies td"),
}
POLICIES = ["random", "nearest", "coverage", "greedy", "local_search"]


def make_runs(folder: Path) -> None:
    """A run of 12 users, one of 1,000, and copies of the first."""
    for name, words in {"small": ["quick"], "large": LARGE}.items():
        if not (folder / name / "report.html").exists():
            command = [sys.executable, "-m", "covey", "run", *words, "--quiet", "--out", name]
            subprocess.run(command, cwd=folder, check=True)
    for index in range(LISTED - 2):
        if not (folder / f"run{index}").exists():
            shutil.copytree(folder / "small", folder / f"run{index}")


@contextmanager
def dashboard(folder: Path) -> Iterator[tuple[str, float, int]]:
    """A dashboard of the folder: its address, the seconds until it printed it, and its process id."""
    command = [sys.executable, "-m", "covey", "dashboard", ".", "--port", "0", "--no-open", "--quiet"]
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, "the dashboard did not start"
        try:
            yield found[0], time.perf_counter() - began, process.pid
        finally:
            process.terminate()


def processor_ms(process: int) -> float:
    """CPU time of a process in milliseconds, which other load on the machine does not affect."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(address: str, body: dict[str, Any] | None = None) -> bytes:
    """The response to a GET, or to a POST if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(address, data, {"Content-Type": "application/json"})) as answer:
        return bytes(answer.read())


def spread(times: list[float]) -> dict[str, float]:
    """Median, shortest and longest time in milliseconds."""
    return {"median": round(statistics.median(times), 1), "low": round(min(times), 1), "high": round(max(times), 1)}


def timed(process: int, work: Callable[[], object], times: int = QUESTIONS) -> dict[str, float]:
    """Milliseconds of a request, and the mean CPU time of the dashboard for it."""
    spent, used = [], processor_ms(process)
    for _ in range(times):
        began = time.perf_counter()
        work()
        spent.append(1e3 * (time.perf_counter() - began))
    return spread(spent) | {"processor": round((processor_ms(process) - used) / times, 1)}


def measure_start(folder: Path) -> dict[str, Any]:
    """Milliseconds until the command accepts requests, and until it has listed the folder."""
    starts, lists, used, listing = [], [], [], []
    for _ in range(TIMES):
        with dashboard(folder) as (address, start_s, process):
            starts.append(1e3 * start_s)
            used.append(processor_ms(process))
            first = timed(process, lambda address=address: ask(f"{address}api/entries"), 1)
            lists.append(first["median"])
            listing.append(first["processor"])
    return {
        "start_ms": spread(starts) | {"processor": round(statistics.median(used), 1)},
        "first_list_ms": spread(lists) | {"processor": round(statistics.median(listing), 1)},
    }


def measure_answers(address: str, process: int) -> dict[str, Any]:
    """Latency of the list and the playground, without a browser."""
    assert len(json.loads(ask(f"{address}api/entries"))) == LISTED
    all_policies = {"rounds": 30, "policies": POLICIES}
    one_policy = {"rounds": 30, "policies": ["greedy"]}
    ask(f"{address}api/playground", all_policies)
    return {
        "later_list_ms": timed(process, lambda: ask(f"{address}api/entries")),
        "playground_5_policies_ms": timed(process, lambda: ask(f"{address}api/playground", all_policies)),
        "playground_1_policy_ms": timed(process, lambda: ask(f"{address}api/playground", one_policy)),
    }


def measure_pages(address: str) -> dict[str, Any]:
    """Milliseconds from the request of a page until it is fully rendered."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("the package playwright is missing; install it with pip install covey[browser]")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("Chromium is missing; install it, on Debian with apt-get install chromium")
    found: dict[str, Any] = {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=FLAGS)
        for name, (path, complete) in PAGES.items():
            times = []
            for _ in range(TIMES + 1):
                context = browser.new_context(viewport={"width": 1200, "height": 900})
                page = context.new_page()
                began = time.perf_counter()
                page.goto(f"{address}#/{path}")
                page.wait_for_selector(complete, timeout=120_000)
                if path.startswith("run?"):
                    page.wait_for_selector("#map canvas", timeout=120_000)
                times.append(1e3 * (time.perf_counter() - began))
                context.close()
            # The first one is a warm-up: it also starts parts of the browser.
            found[name] = spread(times[1:])
        browser.close()
    return found


def table(report: dict[str, Any]) -> str:
    """The results as the table in docs/dashboard.md."""
    server, pages = report["results"]["server"], report["results"]["pages_ms"]
    rows = {
        "the command prints its address": server["start_ms"],
        f"the list of {LISTED} runs, first request": server["first_list_ms"],
        "the same list again": server["later_list_ms"],
        f"the page with {LISTED} runs is complete": pages["list_of_100_runs"],
        "the page of a run of 12 users and 15 rounds": pages["run_of_12_users"],
        "the page of a run of 1,000 users and 12 rounds": pages["run_of_1000_users"],
        "the comparison of two runs": pages["comparison_of_2_runs"],
        "the playground with 12 users": pages["playground_of_12_users"],
        "a response of the playground: five policies, 12 users": server["playground_5_policies_ms"],
        "a response while dragging: one policy, 12 users": server["playground_1_policy_ms"],
    }
    lines = ["| what | median | shortest to longest | CPU time of the dashboard |", "| --- | --- | --- | --- |"]
    for what, time_ms in rows.items():
        used = _time(time_ms["processor"]) if "processor" in time_ms else ""
        between = f"{_time(time_ms['low'])} to {_time(time_ms['high'])}"
        lines.append(f"| {what} | {_time(time_ms['median'])} | {between} | {used} |")
    return "\n".join(lines)


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1e3:.1f} s"


def main() -> None:
    """Run all measurements and write the results."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--runs", type=Path, help="folder of the runs; kept")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.runs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        make_runs(folder)
        before = os.getloadavg()[0]
        started = measure_start(folder)
        with dashboard(folder) as (address, _, process):
            results = {"server": started | measure_answers(address, process), "pages_ms": measure_pages(address)}
    machine = {
        "cores": os.cpu_count(), "load_average_before": round(before, 2),
        "load_average_after": round(os.getloadavg()[0], 2), "times": TIMES, "versions": versions(),
    }  # fmt: skip
    report = {"machine": machine, "results": results}
    given.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(table(report))


if __name__ == "__main__":
    main()
