"""Processes that tests start are gone after them, and a test that hangs is a failure that says where."""

from __future__ import annotations

import ast
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.processes import LIMIT_S, Child, Ended, alive, family, members, run, started, until

ROOT = Path(__file__).parents[1]
#: Ignores what it can ignore, and so does its child, which leaves the session and loses its parent.
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(3600)
    os._exit(0)
time.sleep(3600)
"""
LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc")


def stubborn(child: Child) -> list[int]:
    """The process and its grandchild."""
    found = [child.pid, int(child.line())]
    assert all(alive(process) for process in found)
    return found


@LINUX
def test_a_process_that_ignores_signals_is_gone_with_its_grandchild() -> None:
    with started([sys.executable, "-c", STUBBORN]) as child:
        found = stubborn(child)
        child.send(signal.SIGTERM)
        assert child.running
    assert not any(alive(process) for process in found)


@LINUX
def test_they_are_gone_also_where_the_test_fails() -> None:
    found: list[int] = []

    def failing() -> None:
        with started([sys.executable, "-c", STUBBORN]) as child:
            found.extend(stubborn(child))
            raise KeyError("a test that fails")

    with pytest.raises(KeyError):
        failing()
    assert len(found) == 2
    assert not any(alive(process) for process in found)


@LINUX
def test_a_family_ends_what_others_have_started() -> None:
    with family() as name:
        with started([sys.executable, "-c", STUBBORN], alone=True) as child:
            orphan = stubborn(child)[1]
        assert alive(orphan)
        assert members(name) == [orphan]
    assert not alive(orphan)


def test_much_output_stops_nobody() -> None:
    code = "import sys; print('o' * 1_000_000); print('e' * 1_000_000, file=sys.stderr); sys.exit(3)"
    ended = run([sys.executable, "-c", code])
    assert (ended.returncode, len(ended.stdout), len(ended.stderr)) == (3, 1_000_001, 1_000_001)


def test_a_wait_has_an_end_that_says_what_was_written() -> None:
    with started([sys.executable, "-c", "print('so far', flush=True); import time; time.sleep(3600)"]) as child:
        assert child.line() == "so far"
        with pytest.raises(AssertionError, match=r"not ended after 0\.1 s\nstdout: so far"):
            child.exit_code(0.1)
        with pytest.raises(AssertionError, match="so far"):
            child.line(1, limit_s=0.1)
    early = pytest.raises(AssertionError, match=r"ended too early with code 1\n(.|\n)*gone")
    with started([sys.executable, "-c", "import sys; sys.exit('gone')"]) as child, early:
        child.line()
    with pytest.raises(AssertionError, match="did not come true in 0 s at all"):
        until(lambda: False, 0, lambda: "at all")


def run_tests(folder: Path, code: str, *options: str) -> Ended:
    """What pytest says of a file with this content, with the settings of this repository."""
    (folder / "test_it.py").write_text(code, encoding="utf-8")
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    plugins = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-W", "ignore"]
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *plugins, *options, str(folder)]
    return run(command, cwd=ROOT, env=given)


HANGS = """
import os, signal, subprocess, sys, threading, time
import pytest

def waits():
    time.sleep(3600)

@pytest.mark.timeout(1)
def test_that_hangs():
    {before}
    threading.Thread(target=waits, name="another", daemon=True).start()
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", "{mark}"], start_new_session=True)
    time.sleep(3600)

def test_after_it():
    pass
"""


def left(mark: str) -> list[int]:
    """Processes with a word in their command line, apart from ours."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words and alive(int(path.parent.name)):
            found.append(int(path.parent.name))
    return found


@LINUX
def test_a_test_that_hangs_fails_with_all_stacks_and_the_next_one_runs(tmp_path: Path) -> None:
    pytest.importorskip("pytest_timeout", reason="`make setup` installs pytest-timeout")
    mark = f"left-by-{tmp_path.name}-{os.getpid()}"
    ended = run_tests(tmp_path, HANGS.format(before="pass", mark=mark))
    assert ended.returncode == 1
    assert "1 failed, 1 passed" in ended.stdout
    assert "Timeout (>1.0s) from pytest-timeout" in ended.stdout
    assert "Stack of another" in ended.stdout + ended.stderr
    assert "in waits" in ended.stdout + ended.stderr
    assert not left(mark)


@LINUX
def test_a_test_that_no_signal_reaches_ends_its_worker_and_fails(tmp_path: Path) -> None:
    pytest.importorskip("xdist", reason="`make setup` installs pytest-xdist")
    mark = f"left-by-{tmp_path.name}-{os.getpid()}"
    deaf = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])"
    ended = run_tests(tmp_path, HANGS.format(before=deaf, mark=mark), "-n", "1", "-o", "grace=1")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 1 passed" in ended.stdout
    assert "crashed while running" in ended.stdout
    assert "test_that_hangs" in ended.stdout
    assert "in waits" in ended.stderr
    assert not left(mark)


#: Methods that wait for ever when they are called without arguments.
ENDLESS = {"acquire", "communicate", "join", "recv", "result", "wait"}


def test_no_test_waits_without_a_limit() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            place, name = f"{path.relative_to(ROOT)}, line {node.lineno}", node.func.attr
            bounded = bool(node.args or node.keywords)
            assert name not in ENDLESS or bounded, f"{place}: {name}() may wait for ever"
            if ast.unparse(node.func).startswith("subprocess.") and path.name not in ("processes.py", "lying_node.py"):
                ends = name == "run" and "timeout" in {word.arg for word in node.keywords}
                assert ends, f"{place}: start it with tests.processes"


def test_limits_are_for_busy_machines() -> None:
    assert LIMIT_S >= 120
