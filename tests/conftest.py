"""Settings of all tests, and the names of those that were left out."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that start many processes run when they are asked for."""
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
