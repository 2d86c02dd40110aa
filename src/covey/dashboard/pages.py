"""Static files of the dashboard, read once from the package."""

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
    """An application that serves the static files only."""
    app = FastAPI(openapi_url=None)
    app.include_router(pages())
    app.exception_handler(HTTPException)(on_http)
    return app


def pages() -> APIRouter:
    """Routes of the static files: `/`, `/static`, and `/assets` for those shared with reports."""
    files = _files(resources.files("covey") / "dashboard" / "static", "/static")
    # Not files("covey.report"): importing that package takes seconds.
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
    """Content and media type of every servable file below a folder, by URL path."""
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
