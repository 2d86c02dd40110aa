"""The page is served while the rest is still being made."""

from __future__ import annotations

import asyncio
import sys
import threading

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp
from tests.dashboard.conftest import run_now
from tests.processes import LIMIT_S, run

from covey.dashboard.lazy_app import Late
from covey.dashboard.pages import page_app


def asked(late: Late) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(late), base_url="http://localhost")


async def page_then_api() -> None:
    go = threading.Event()

    def make() -> ASGIApp:
        go.wait(LIMIT_S)
        return PlainTextResponse("made")

    late = Late(page_app(), make)
    async with asked(late) as client:
        assert (await client.get("/")).text.startswith("<!DOCTYPE html>")
        missing = await client.get("/nothing")
        assert missing.status_code == 404
        assert "Not Found: GET /nothing" in missing.json()["error"]
        with pytest.raises(TimeoutError):  # a client that goes away before
            async with asyncio.timeout(0.05):
                await client.get("/api/about")
        go.set()
        assert (await client.get("/api/about")).text == "made"


async def api_that_fails() -> None:
    def make() -> ASGIApp:
        raise ValueError("no numbers today")

    late = Late(page_app(), make)
    late.begin()
    late.begin()
    async with asked(late) as client:
        with pytest.raises(ValueError, match="no numbers today"):
            await client.get("/api/about")


def test_pages_are_served_before_the_rest_is_there() -> None:
    run_now(page_then_api())


def test_an_error_while_the_rest_is_made_reaches_who_asks() -> None:
    run_now(api_that_fails())


def test_the_page_alone_needs_no_part_of_covey_that_takes_long_to_import() -> None:
    modules = "covey.cli.dashboard, covey.dashboard.runs_folder, covey.dashboard.serve"
    code = f"import sys, {modules}; print({{'torch', 'numpy', 'matplotlib'}} & sys.modules.keys())"
    found = run([sys.executable, "-c", code])
    assert (found.returncode, found.stdout.strip()) == (0, "set()")
