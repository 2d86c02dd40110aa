"""Processes of this machine as a pool: all that is asked for is computed, errors arrive, lost processes are said."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from tests.processes import alive, started, until

from covey.errors import CoveyError, ScenarioError
from covey.jobs import Pool, in_order, open_pool, results


def power(base: int) -> int:
    return base**2


def fail(sentence: str) -> None:
    raise ScenarioError(sentence)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(marker: str) -> str:
    if not os.path.exists(marker):
        Path(marker).touch()
        die()
    return "alive"


def wait_long(marker: str) -> None:
    Path(marker).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(3600)


def test_everything_is_computed_and_named() -> None:
    with open_pool(2) as pool:
        found = dict(results(pool, in_order([(n, power, (n,)) for n in range(7)])))
    assert found == {n: n**2 for n in range(7)}


def test_no_more_is_begun_than_can_be_computed_at_once_and_results_decide_what_comes_next() -> None:
    begun, finished = [], []

    def more() -> Any:
        if len(begun) - len(finished) >= 1 or len(begun) == 3:
            return None
        begun.append(2 if not finished else finished[-1])
        return len(begun), power, (begun[-1],)

    with open_pool(2) as pool:
        for _, value in results(pool, more):
            finished.append(value)
    assert finished == [4, 16, 256]


def test_an_error_reaches_the_caller() -> None:
    with pytest.raises(ScenarioError, match="no such thing"), open_pool(1) as pool:
        list(results(pool, in_order([("bad", fail, ("no such thing",))])))


def test_results_come_before_an_error() -> None:
    found = []

    def ask(pool: Pool) -> None:
        for name, _ in results(pool, in_order([("bad", fail, ("no such thing",)), ("good", power, (2,))])):
            found.append(name)

    class Done:
        size = 2

        def submit(self, function: Any, *arguments: Any) -> Any:
            answer: Future[Any] = Future()
            try:
                answer.set_result(function(*arguments))
            except ScenarioError as error:
                answer.set_exception(error)
            return answer

        def close(self, *, abandon: bool) -> None:
            pass

    with pytest.raises(ScenarioError, match="no such thing"):
        ask(Done())
    assert found == ["good"]


def test_a_process_that_dies_is_replaced_and_its_work_begun_again(tmp_path: Path) -> None:
    pieces = [("fragile", die_once, (str(tmp_path / "died"),)), *((n, power, (n,)) for n in range(4))]
    with open_pool(2) as pool:
        found = dict(results(pool, in_order(pieces)))
    assert (tmp_path / "died").exists()
    assert found == {"fragile": "alive", **{n: n**2 for n in range(4)}}


def test_work_that_kills_every_process_is_one_sentence() -> None:
    def ask(pool: Pool) -> None:
        list(results(pool, in_order([("bad", die, ())])))

    sentence = r"a worker process died, 4 times.*run the same command again"
    with pytest.raises(CoveyError, match=sentence), open_pool(1) as pool:
        ask(pool)


def test_processes_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = """if __name__ == "__main__":
        import sys; sys.path.insert(0, sys.argv[1])
        from test_pool import wait_long
        from covey.jobs import in_order, open_pool, results
        with open_pool(1) as pool:
            list(results(pool, in_order([("long", wait_long, (sys.argv[2],))])))"""
    (tmp_path / "parent.py").write_text(script.replace("\n        ", "\n    "), encoding="utf-8")
    marker = tmp_path / "pid"
    here = str(Path(__file__).parent)
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2])])
    command = [sys.executable, tmp_path / "parent.py", here, marker]
    with started(command, env={**os.environ, "PYTHONPATH": paths}) as parent:
        parent.wait_until(lambda: marker.exists() and marker.read_text(encoding="utf-8") != "")
        worker = int(marker.read_text(encoding="utf-8"))
        assert alive(worker)
        parent.send(signal.SIGKILL)
        parent.exit_code()
        until(lambda: not alive(worker))


def test_without_ray_the_option_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ScenarioError, match=r"pip install 'covey\[ray\]'"), open_pool(1, "local"):
        pass
