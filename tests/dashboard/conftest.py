"""A folder of runs and a client of its dashboard."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.processes import LIMIT_S, family, until

from covey.cli.main import main
from covey.dashboard.app import create_app
from covey.dashboard.scenario_keys import Settings
from covey.dashboard.serve import listen, server_of
from covey.scenario import dump_scenario, load_scenario
from covey.simulation.progress import PROGRESS


def write_run(
    folder: Path,
    name: str,
    *,
    rounds: int = 3,
    total: int = 3,
    status: str | None = "finished",
    overrides: tuple[str, ...] = (),
    message: str = "",
) -> Path:
    """A run as it looks from outside: scenario, progress and a checkpoint that only exists."""
    path = folder / name
    path.mkdir(parents=True)
    (path / "scenario.toml").write_text(dump_scenario(load_scenario("quick", overrides)))
    (path / "checkpoint.safetensors").write_bytes(b"not read")
    about = {"kind": "run", "scenario": "quick", "policy": "greedy", "seed": 0}
    lines: list[dict[str, Any]] = [{"event": "started", **about, "done": 0, "total": total}]
    for number in range(1, rounds + 1):
        row = {"round": number, "loss": 2.0 / number, "accuracy": 0.1 * number, "epsilon_max": "infinite"}
        lines.append({"event": "row", "row": row, "done": number, "total": total})
    if status is not None:
        lines.append({"event": "ended", "status": status, "message": message, "done": rounds, "total": total})
    (path / PROGRESS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of two rounds."""
    folder = tmp_path_factory.mktemp("real") / "real"
    with pytest.raises(SystemExit) as ended:
        main(["run", "quick", "--rounds", "2", "--quiet", "--out", str(folder)])
    assert ended.value.code == 0
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of runs."""
    path = tmp_path / "runs"
    path.mkdir()
    return path


@pytest.fixture
def with_real_run(folder: Path, real_run: Path) -> Path:
    """A folder that holds the real run as `real`."""
    shutil.copytree(real_run, folder / "real")
    return folder


def run_now(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of asynchronous work; in a thread of its own: a browser's driver may run a loop in this one."""
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(asyncio.run(work))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()  # not waited for where it hangs
    return found.result(timeout=LIMIT_S)


class Client:
    """Asks a dashboard without a network, from an address and by a host name of choice."""

    def __init__(self, settings: Settings, address: str = "127.0.0.1", host: str = "127.0.0.1:8421") -> None:
        self._app = create_app(settings)
        self._address, self._host = address, host
        self.headers: dict[str, str] = {}

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)

    def request(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False, client=(self._address, 50000))
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{self._host}") as client:
                return await client.request(method, path, headers={**self.headers, **(headers or {})}, **more)

        answer: httpx.Response = run_now(ask())
        return answer


@pytest.fixture
def client(folder: Path) -> Client:
    """A client on the same machine, without a token."""
    return Client(Settings(folder, port=8421))


@contextmanager
def listening(settings: Settings) -> Iterator[httpx.Client]:
    """A client of a dashboard that really listens."""
    addresses: list[str] = []
    one = listen("127.0.0.1", 0)
    server = server_of(settings, one, addresses.append)
    thread = threading.Thread(target=server.run, args=([one],), daemon=True)
    thread.start()
    with family():  # jobs end with the dashboard that started them
        try:
            until(lambda: addresses)
            with httpx.Client(base_url=addresses[0], timeout=LIMIT_S) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(timeout=LIMIT_S)
            one.close()
    assert not thread.is_alive()


@pytest.fixture
def live(folder: Path) -> Iterator[httpx.Client]:
    """A client of a dashboard that really listens, for streams and jobs; one job at a time."""
    with listening(Settings(folder, jobs=1)) as client:
        yield client
