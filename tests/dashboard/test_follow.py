"""Live updates, by a server that really listens."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.dashboard.conftest import listening, write_run
from tests.processes import LIMIT_S
from tests.processes import until as wait_until

from covey.dashboard.scenario_keys import Settings
from covey.simulation.progress import PROGRESS, Progress

Event = tuple[str, Any]


def events(response: httpx.Response) -> Generator[Event]:
    kind, deadline = "", time.monotonic() + LIMIT_S
    for line in response.iter_lines():
        assert time.monotonic() < deadline, "nothing but signs of life for minutes"
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


def until(stream: Iterator[Event], wanted: str) -> tuple[Any, list[str]]:
    """The next event of a kind, and the kinds before it."""
    before = []
    for kind, data in stream:
        if kind == wanted:
            return data, before
        before.append(kind)
    raise AssertionError(f"no {wanted} after {before}")


def test_the_list_tells_what_is_new_changed_and_gone(folder: Path, live: httpx.Client) -> None:
    with live.stream("GET", "/api/watch") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        stream = events(response)
        assert until(stream, "entries") == ([], [])
        path = write_run(folder, "a", rounds=1, status=None)
        new, _ = until(stream, "entries")
        assert [(entry["id"], entry["done"]) for entry in new] == [("a", 1)]
        with (path / PROGRESS).open("a") as file:
            file.write(json.dumps({"event": "ended", "status": "failed", "done": 1, "total": 3}) + "\n")
        changed, _ = until(stream, "entries")
        assert changed[0]["status"] == "failed"
        shutil.rmtree(path)
        assert until(stream, "gone")[0] == ["a"]


def test_an_entry_is_followed_row_by_row(folder: Path, live: httpx.Client) -> None:
    path = folder / "a"
    path.mkdir()
    with Progress(path) as progress:
        progress.start({"kind": "run", "scenario": "quick", "policy": "x", "seed": 0}, done=0, total=3, resume=False)
        progress.row({"round": 1, "loss": 3}, 1)
        with live.stream("GET", "/api/follow", params={"id": "a"}) as response:
            stream = events(response)
            rows, before = until(stream, "rows")
            assert (rows, before) == ([{"round": 1, "loss": 3}], ["reset"])
            assert until(stream, "entry")[0]["done"] == 1
            progress.row({"round": 2, "loss": 2}, 2)
            assert until(stream, "rows") == ([{"round": 2, "loss": 2}], [])
            assert until(stream, "entry")[0]["done"] == 2
            # The same process wrote and watches, so that the lock tells nothing here.
            progress.interrupted()
            progress.__exit__(None, None, None)
            assert until(stream, "entry")[0]["status"] == "interrupted"
            progress.start({"kind": "run"}, done=1, total=3, resume=True)
            assert until(stream, "rows") == ([{"round": 1, "loss": 3}], ["reset"])
            shutil.rmtree(path)
            assert until(stream, "gone")[0] == ["a"]


def test_the_last_round_of_a_real_run_comes_as_a_frame(with_real_run: Path, live: httpx.Client) -> None:
    with live.stream("GET", "/api/follow", params={"id": "real"}) as response:
        frame, before = until(events(response), "frame")
    assert before == ["reset", "rows"]
    assert frame["frame"]["round"] == 2
    assert len(frame["site"]["stations_m"]) == 4


def test_streams_end_with_the_server(folder: Path) -> None:
    with httpx.Client(timeout=LIMIT_S) as another:
        with listening(Settings(folder)) as client:
            response = another.send(another.build_request("GET", f"{client.base_url}api/watch"), stream=True)
            stream = events(response)
            until(stream, "entries")
        # Leaving the block stopped the server, which found the stream open and ended it.
        assert list(stream) == []


def test_the_number_of_streams_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.dashboard.follow.STREAMS", 1)
    with listening(Settings(folder)) as client, client.stream("GET", "/api/watch") as response:
        stream = events(response)
        until(stream, "entries")
        refused = client.get("/api/watch")
        assert refused.status_code == 409
        assert "too many pages" in refused.json()["error"]
        stream.close()
    # A page that went away makes room.
    with listening(Settings(folder)) as client:

        def admitted() -> bool:
            with client.stream("GET", "/api/watch") as response:
                return response.status_code == 200 and until(events(response), "entries") is not None

        for _ in range(3):
            wait_until(admitted)  # the server takes a moment to see that the page has gone
