"""The listening socket and the server, with clean shutdown."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable
from dataclasses import replace

import uvicorn
from starlette.types import ASGIApp

from covey.dashboard.access import Guard
from covey.dashboard.lazy_app import Late
from covey.dashboard.pages import page_app
from covey.dashboard.scenario_keys import Settings, is_loopback
from covey.errors import ScenarioError

#: Seconds for the browser to fetch the page before the API is imported.
_HEAD_START_S = 2.0


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises `ScenarioError` with the reason if it cannot be opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    foreign = f"'{host}' is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all its addresses"
    try:
        socket.getaddrinfo(host, port, family)
    except (OSError, UnicodeError):  # unknown or invalid host name
        raise ScenarioError(foreign) from None
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reason = f"port {port} is in use; choose another with --port, or --port 0 for any free one"
        elif error.errno in (errno.EACCES, errno.EPERM):
            reason = f"port {port} needs more rights than you have; choose one above 1023 with --port"
        elif error.errno == errno.EADDRNOTAVAIL:
            reason = foreign
        else:
            reason = f"cannot listen at {host} port {port}: {error.strerror or error}"
        raise ScenarioError(reason) from None


def serve(settings: Settings, listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted; `ready` is called with the URL once the server accepts requests."""
    # uvicorn re-raises the interrupt after a clean shutdown.
    with contextlib.suppress(KeyboardInterrupt), listening:
        server_of(settings, listening, ready).run(sockets=[listening])


def server_of(settings: Settings, listening: socket.socket, ready: Callable[[str], None]) -> uvicorn.Server:
    """The server of a dashboard, not yet started; set `should_exit` to stop it."""
    settings = replace(settings, port=listening.getsockname()[1])

    def make() -> ASGIApp:
        from covey.dashboard.app import api_app  # slow import, deferred so that the page loads first

        return api_app(settings, closing=lambda: server.should_exit)

    late = Late(page_app(), make)

    def answering() -> None:
        ready(address_of(settings))
        soon = threading.Timer(_HEAD_START_S, late.begin)
        soon.daemon = True
        soon.start()

    server = _Server(
        uvicorn.Config(
            Guard(late, settings),
            log_level="critical",
            access_log=False,  # URLs may contain the token
            server_header=False,
            proxy_headers=False,  # clients could spoof their address
            lifespan="off",
            timeout_graceful_shutdown=5,
            limit_concurrency=200,
        ),
        answering,
    )
    return server


def address_of(settings: Settings) -> str:
    """The URL to open in a browser, including the token if there is one."""
    host = settings.host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    login = f"login?token={settings.token}" if settings.token is not None else ""
    return f"http://{shown}:{settings.port}/{login}"


def reaches_others(host: str) -> bool:
    """Whether other machines can reach this address."""
    return not is_loopback(host)


class _Server(uvicorn.Server):
    """A server that calls `ready` after startup."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call `ready`."""
        await super().startup(sockets)
        self._ready()
