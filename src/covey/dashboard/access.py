"""Access control: middleware that checks every request and adds security headers to every response.

Without a token only the loopback interface is served, and only same-origin pages may read or write. With a
token every request must be authenticated. Checks:

- Host: unknown names are refused (DNS rebinding).
- Origin and Sec-Fetch-Site: cross-origin requests are refused (cross-site request forgery).
- Content-Type: writes are JSON, which another origin cannot send without a CORS preflight.
- Body size and timeout.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import socket
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from covey.dashboard.scenario_keys import BODY_BYTES, BODY_S, Settings, is_loopback

#: Headers of every response. Pages load same-origin resources only and may not be framed.
HEADERS: dict[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers would then send the login form with a null origin.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
#: For a report, which has inline scripts: sandboxed, in an opaque origin, without network access.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE = ("GET", "HEAD", "OPTIONS")
_LOGIN = "/login"
_LOGIN_STYLE = """
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 30rem; margin: 10vh auto 0; padding: 0 1rem; }
h1 { font-size: 1.6rem; }
label, [role="alert"] { font-weight: 600; }
input, button { font: inherit; padding: 0.35rem 0.7rem; border-radius: 5px; border: 1px solid #80868e; }
input { display: block; width: 100%; box-sizing: border-box; }
:focus-visible { outline: 3px solid light-dark(#0b57b0, #8ab8ff); outline-offset: 2px; }
"""
#: The login page is the only one served without a token, so its style is inline, allowed by hash.
_LOGIN_POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_LOGIN_STYLE.encode()).digest()).decode()}';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_LOGIN_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>covey dashboard</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>{style}</style></head><body><main><h1>covey dashboard</h1><p role="alert">{message}</p>
<form method="post" action="/login"><p><label for="token">Token</label></p>
<p><input id="token" name="token" type="password" autocomplete="off" required autofocus></p>
<p><button>Open the dashboard</button></p></form>
<p>The command <code>covey dashboard</code> printed the token when it was started.</p></main></body></html>
"""


class Guard:
    """ASGI middleware around the whole dashboard."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        own = {"localhost", socket.gethostname().lower(), settings.host.lower()}
        self._names = {"localhost"} if settings.token is None else own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        send = _with_headers(send)
        headers = Headers(scope=scope)
        answer = self._refusal(scope, headers)
        if answer is None and scope["method"] not in _SAFE:
            body = await _read_body(headers, receive)
            if isinstance(body, Response):
                answer = body
            else:
                receive = _replay(body, receive)
                if scope["path"] == _LOGIN:
                    answer = self._login(parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0])
        if answer is None and scope["path"] == _LOGIN:
            answer = self._login(parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0])
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """The error response to a request that is not allowed, otherwise None."""
        host = headers.get("host", "")
        if not self._is_our_name(host):
            return refuse(
                421, f"the dashboard does not answer to the name '{host[:80]}'; open it by the address it printed"
            )
        if not _same_origin(scope, headers, host):
            return refuse(403, "this request comes from another web page; open the dashboard itself")
        if scope["method"] not in _SAFE and scope["path"] != _LOGIN and not _is_json(headers):
            return refuse(415, "requests that change something must be sent as application/json")
        if self._settings.token is None:
            client = scope.get("client")
            if client is None or not is_loopback(client[0]):
                return refuse(403, "without a token the dashboard serves this machine only; start it with --token")
        elif scope["path"] != _LOGIN and not self._knows_token(headers):
            if scope["path"] == "/" and scope["method"] == "GET":
                return _login_page("This dashboard needs a token.")
            return refuse(401, "this dashboard needs a token; log in, or send it as 'Authorization: Bearer TOKEN'")
        return None

    def _is_our_name(self, host: str) -> bool:
        """Whether the Host header is an IP address or a known name of this machine."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if not host or "@" in host or "/" in host:
            return False
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return address.is_loopback if self._settings.token is None else True

    def _knows_token(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _equal(given.strip(), self._settings.token or ""):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._settings.cookie)
        except CookieError:
            return False
        return cookie is not None and _equal(cookie.value, self._settings.session)

    def _login(self, token: str) -> Response:
        if self._settings.token is None:
            return RedirectResponse("/", status_code=303)
        if not _equal(token, self._settings.token):
            return _login_page("That is not the token." if token else "This dashboard needs a token.")
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(self._settings.cookie, self._settings.session, httponly=True, samesite="strict", path="/")
        return response


def refuse(status: int, sentence: str) -> Response:
    """An error response with a one-sentence message."""
    return JSONResponse({"error": sentence}, status_code=status)


async def on_http(request: Request, error: HTTPException) -> Response:
    """The response to an unknown path or a method that is not allowed."""
    response = refuse(error.status_code, f"{error.detail}: {request.method} {request.url.path[:80]}")
    response.headers.update(error.headers or {})
    return response


def _login_page(message: str) -> Response:
    page = _LOGIN_PAGE.format(message=message, style=_LOGIN_STYLE)
    return HTMLResponse(page, status_code=401, headers={"content-security-policy": _LOGIN_POLICY})


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _is_json(headers: Headers) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _same_origin(scope: Scope, headers: Headers, host: str) -> bool:
    """Whether a request is same-origin, typed by the user, or not from a browser."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None:
        parts = urlsplit(origin) if origin.isascii() else urlsplit("")
        if parts.scheme not in ("http", "https") or parts.netloc.lower() != host.lower():
            return False
    if site is None or site in ("same-origin", "none"):
        return True
    # Cross-site links may open the dashboard; all other cross-site requests are refused.
    opens_page = scope["method"] == "GET" and scope["path"] in ("/", _LOGIN)
    return opens_page and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


async def _read_body(headers: Headers, receive: Receive) -> bytes | Response:
    too_large = refuse(413, f"the request is larger than {BODY_BYTES // 1024} kB")
    declared = headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared[:12]) > BODY_BYTES:
        return too_large
    body: bytes = b""
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > BODY_BYTES:
                    return too_large
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return body
    except TimeoutError:
        return refuse(408, f"the request did not arrive within {BODY_S:g} seconds")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that replays the body already read, then delegates to the connection."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers


def sentence_of(problems: Sequence[Any]) -> str:
    """The first validation error of FastAPI as one sentence."""
    problem = problems[0] if problems else {}
    where = ".".join(str(part) for part in problem.get("loc", ())[1:]) or "the request"
    message = str(problem.get("msg", "is not allowed")).replace("Input should", "it should")
    return f"'{where}': {message[:1].lower()}{message[1:300]}"


def dumps(value: Any) -> bytes:
    """Strict JSON; NaN and infinity raise."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
