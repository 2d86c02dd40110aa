"""Settings of all tests, their time limits, and the names of those that were left out.

A test that hangs is ended by pytest-timeout, which shows what every thread was doing and lets the test clean up.
Where it hangs in machine code, which no signal interrupts, its process is ended some minutes later; pytest-xdist
counts that as a failure and goes on. Whatever processes the tests have left behind are ended at the end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from typing import IO

import pytest
from tests.forks import Forks, covey_forks
from tests.processes import FAMILY, end_family

# Before torch is imported anywhere: one compute thread, as the workers have.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a script: without this, everything that tests start would ignore Ctrl-C as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)

with contextlib.suppress(ImportError):  # the tests with BenchMARL have an environment of their own, without it
    import hypothesis

    # How long something takes says more about what else the machine does than about covey.
    hypothesis.settings.register_profile(
        "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def nothing_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Data sets, calibrations and policies of whoever runs the tests change no result."""
    os.environ["COVEY_DATA"] = str(tmp_path_factory.mktemp("no_data"))


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Runs commands without starting an interpreter for each."""
    with covey_forks() as found:
        yield found


#: Seconds for a test; it is at least ten times what any of the kind needs on a quiet machine.
ORDINARY_S, BROWSER_S, DEPLOY_S = 600.0, 1200.0, 3600.0
_GRACE = pytest.StashKey[float]()
_OUTPUT = pytest.StashKey[IO[bytes]]()
_TOKEN = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long a test may ignore that its time is over."""
    parser.addini("grace", "seconds until the process of a test ends whose time limit had no effect", default="180")


def pytest_configure(config: pytest.Config) -> None:
    """Everything that tests start is of one family."""
    config.stash[_GRACE] = float(config.getini("grace"))
    # Output of tests is not yet redirected here; pytest-xdist puts something that is no file in the place of stderr.
    config.stash[_OUTPUT] = os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "wb")
    config.stash[_TOKEN] = secrets.token_hex(8)
    os.environ[FAMILY] = f"{os.environ.get(FAMILY, '')}:{config.stash[_TOKEN]}"


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what is left, also of workers that died."""
    if _TOKEN in config.stash:
        end_family(config.stash[_TOKEN])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process of a test that goes on after its time limit; where its threads are is written first."""
    marked = item.get_closest_marker("timeout")
    limit_s = float(marked.args[0]) if marked is not None and marked.args else ORDINARY_S
    faulthandler.dump_traceback_later(limit_s + item.config.stash[_GRACE], exit=True, file=item.config.stash[_OUTPUT])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Time limits; and tests that start many processes run when they are asked for."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            slow = {"deploy": DEPLOY_S, "browser": BROWSER_S}
            limits = [limit_s for name, limit_s in slow.items() if item.get_closest_marker(name) is not None]
            item.add_marker(pytest.mark.timeout(max(limits, default=ORDINARY_S)))
    if "deploy" in config.getoption("markexpr"):
        return
    left_out = pytest.mark.skip(
        reason="it starts real servers and devices, which takes minutes; `make test-deploy` runs it"
    )
    for item in items:
        if item.get_closest_marker("deploy") is not None:
            item.add_marker(left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name every test that did not run, and why: a number of skipped tests is easily taken for success."""
    left_out: dict[str, set[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        left_out.setdefault(_reason(report), set()).add(report.nodeid)
    if not left_out:
        return
    terminalreporter.section("left out, so neither passed nor failed")
    for reason, names in sorted(left_out.items()):
        terminalreporter.write_line(f"{reason}:")
        for name in sorted(names):
            terminalreporter.write_line(f"  {name}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    # A skipped test is told as (file, line, "Skipped: why").
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")
