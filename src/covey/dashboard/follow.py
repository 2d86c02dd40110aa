"""Live updates: server-sent events for the list and for single entries, by polling files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from covey.dashboard.catalogue import Catalogue
from covey.dashboard.downloads import Pictures
from covey.dashboard.entries import Entry
from covey.dashboard.run_tables import Tables
from covey.dashboard.scenario_keys import STREAMS
from covey.errors import CoveyError

#: Polling intervals in seconds: the list, a running entry, an idle entry.
_LIST_S, _RUNNING_S, _IDLE_S = 1.0, 0.3, 1.0
#: Maximum number of rows per event.
_ROWS = 500
#: Keep-alive interval in seconds; the ping also detects disconnected clients.
_SILENCE_S = 10.0


class Streams:
    """Streams of server-sent events as text; they end once `closing()` is true."""

    def __init__(
        self, catalogue: Catalogue, tables: Tables, pictures: Pictures, closing: Callable[[], bool] = lambda: False
    ) -> None:
        self._catalogue, self._tables, self._pictures = catalogue, tables, pictures
        self.closing = closing
        self.open = 0

    @property
    def full(self) -> bool:
        """Whether no more streams may be opened."""
        return self.open >= STREAMS

    async def watch(self) -> AsyncGenerator[str]:
        """Events of the list: `entries` (new or changed) and `gone` (removed names)."""
        known: dict[str, Entry] = {}
        first = True
        async with _Counted(self):
            while not self.closing():
                now = {entry.id: entry for entry in await asyncio.to_thread(self._catalogue.entries)}
                changed = [entry.model_dump() for name, entry in now.items() if known.get(name) != entry]
                gone = [name for name in known if name not in now]
                if changed or first:
                    yield _event("entries", changed)
                if gone:
                    yield _event("gone", gone)
                yield ""
                known, first = now, False
                await self._nap(_LIST_S)

    async def follow(self, name: str) -> AsyncGenerator[str]:
        """Events of an entry: `entry`, `reset` (discard all rows), `rows`, and `frame` with the last round of a run."""
        path = self._catalogue.folder.place(name)
        entry: Entry | None = None
        version, sent, shown = -1, 0, -1
        async with _Counted(self):
            while not self.closing():
                try:
                    now = await asyncio.to_thread(self._catalogue.entry, name)
                    table = await asyncio.to_thread(self._tables.table, path)
                except (CoveyError, OSError):
                    yield _event("gone", [name])
                    return
                if version != table.version:
                    version, sent = table.version, 0
                    yield _event("reset", None)
                while sent < len(table.rows):
                    yield _event("rows", table.rows[sent : sent + _ROWS])
                    sent = min(sent + _ROWS, len(table.rows))
                if now.kind == "run" and shown != now.done:
                    frame = await asyncio.to_thread(self._frame, name)
                    if frame is not None:
                        shown = now.done
                        yield _event("frame", frame)
                if now != entry:
                    entry = now
                    yield _event("entry", entry.model_dump())
                yield ""
                await self._nap(_RUNNING_S if now.status == "running" else _IDLE_S)

    def _frame(self, name: str) -> dict[str, Any] | None:
        try:
            return self._pictures.newest(self._catalogue.folder.place(name))
        except (CoveyError, OSError):
            return None

    async def _nap(self, seconds: float) -> None:
        """Sleep in short steps, so that the server can shut down quickly."""
        while seconds > 0 and not self.closing():
            await asyncio.sleep(min(seconds, 0.25))
            seconds -= 0.25


class _Counted:
    """Context manager that counts an open stream."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def __aenter__(self) -> None:
        self._streams.open += 1

    async def __aexit__(self, *_: object) -> None:
        self._streams.open -= 1


async def with_pings(events: AsyncGenerator[str]) -> AsyncIterator[str]:
    """The events; an empty one becomes a keep-alive comment if nothing has been sent for a while."""
    loop = asyncio.get_running_loop()
    last = loop.time()
    yield ": here\n\n"
    async with aclosing(events):
        async for event in events:
            if event or loop.time() - last >= _SILENCE_S:
                last = loop.time()
                yield event or ": here\n\n"


def _event(kind: str, data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, allow_nan=False, separators=(',', ':'))}\n\n"
