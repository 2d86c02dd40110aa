"""An application that answers before all of it is imported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from starlette.types import ASGIApp, Receive, Scope, Send


class Late:
    """Serves `pages` at once, and everything below /api once `make` has returned the application for it.

    `make` runs in a thread of its own, from the first such request or from `begin` on. Before that a browser can
    load the whole page: imports would hold the interpreter's lock for seconds.
    """

    def __init__(self, pages: ASGIApp, make: Callable[[], ASGIApp]) -> None:
        self._pages, self._make = pages, make
        self._made: Future[ASGIApp] = Future()
        self._begun = threading.Lock()

    def begin(self) -> None:
        """Start to make the application, unless that has been done."""
        if self._begun.acquire(blocking=False):
            threading.Thread(target=self._run, daemon=True, name="covey-import").start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, if need be after a wait."""
        app = self._pages
        if scope["type"] == "http" and scope["path"].startswith("/api"):
            self.begin()
            # Shielded: a client that goes away must not cancel what others wait for.
            app = await asyncio.shield(asyncio.wrap_future(self._made))
        await app(scope, receive, send)

    def _run(self) -> None:
        try:
            self._made.set_result(self._make())
        except BaseException as error:
            self._made.set_exception(error)
