"""The page itself: files that come with the package, read once."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import APIRouter, FastAPI, Response
from starlette.exceptions import HTTPException

from covey.dashboard.access import on_http, refuse

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def page_app() -> FastAPI:
    """The page alone, as an application."""
    app = FastAPI(openapi_url=None)
    app.include_router(pages())
    app.exception_handler(HTTPException)(on_http)
    return app


def pages() -> APIRouter:
    """Routes of the page: `/`, its own files below `/static`, those shared with reports below `/assets`."""
    files = _files(resources.files("covey") / "dashboard" / "static", "/static")
    # Not by the name of the package, which takes seconds to import.
    files |= _files(resources.files("covey") / "report" / "assets", "/assets")
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def index() -> Response:
        return _answer(files, "/static/index.html")

    @router.get("/static/{path:path}")
    def static(path: str) -> Response:
        return _answer(files, f"/static/{path}")

    @router.get("/assets/{path:path}")
    def assets(path: str) -> Response:
        return _answer(files, f"/assets/{path}")

    return router


def _files(folder: Traversable, before: str) -> dict[str, tuple[bytes, str]]:
    """Address to content and kind of every file below a folder that a page may need."""
    found: dict[str, tuple[bytes, str]] = {}
    for item in folder.iterdir():
        kind = _KINDS.get(f".{item.name.rpartition('.')[2]}")
        if item.is_dir():
            found |= _files(item, f"{before}/{item.name}")
        elif kind is not None:
            found[f"{before}/{item.name}"] = item.read_bytes(), kind
    return found


def _answer(files: dict[str, tuple[bytes, str]], address: str) -> Response:
    if address not in files:
        return refuse(404, f"there is no page '{address[:80]}'")
    content, kind = files[address]
    return Response(content, media_type=kind)
