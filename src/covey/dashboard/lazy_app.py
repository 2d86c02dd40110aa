"""An ASGI application that serves static pages while the API is still being imported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from starlette.types import ASGIApp, Receive, Scope, Send


class Late:
    """Serves `pages` at once, and /api once `make` has returned the application for it.

    `make` runs in its own thread, started by the first API request or by `begin`. Deferring it lets the browser
    load the page first: imports would hold the GIL for seconds.
    """

    def __init__(self, pages: ASGIApp, make: Callable[[], ASGIApp]) -> None:
        self._pages, self._make = pages, make
        self._made: Future[ASGIApp] = Future()
        self._begun = threading.Lock()

    def begin(self) -> None:
        """Start building the application; idempotent."""
        if self._begun.acquire(blocking=False):
            threading.Thread(target=self._run, daemon=True, name="covey-import").start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; API requests wait until the application is built."""
        app = self._pages
        if scope["type"] == "http" and scope["path"].startswith("/api"):
            self.begin()
            # Shielded: a client that disconnects must not cancel the future that others await.
            app = await asyncio.shield(asyncio.wrap_future(self._made))
        await app(scope, receive, send)

    def _run(self) -> None:
        try:
            self._made.set_result(self._make())
        except BaseException as error:
            self._made.set_exception(error)
