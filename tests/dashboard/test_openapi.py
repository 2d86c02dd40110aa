"""Whatever is asked within the description of the interface, the dashboard never fails."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.dashboard.conftest import run_now, write_run

from covey.dashboard.app import create_app
from covey.dashboard.scenario_keys import Settings

schemathesis = pytest.importorskip("schemathesis", reason="comes with pip install covey[browser]")

#: Requests of every kind of question.
EXAMPLES = 25
#: Streams do not end, so that they cannot be asked like this.
STREAMS = {"/api/watch", "/api/follow"}


def test_no_request_makes_the_dashboard_fail(tmp_path: Path) -> None:
    write_run(tmp_path, "a")
    # No jobs: whatever form is made up, nothing is started.
    app = create_app(Settings(tmp_path, jobs=0))
    description = run_now(_ask(app, "GET", "/api/openapi.json")).json()
    schema = schemathesis.openapi.from_dict(description)
    asked: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in STREAMS:
            continue

        @given(case=operation.as_strategy(), known=st.booleans())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: schemathesis.Case, known: bool) -> None:
            query = dict(case.query or {})
            if known and "id" in query:
                query["id"] = "a"
            body = {} if case.body is schemathesis.core.NOT_SET else {"json": case.body}
            answer = run_now(_ask(app, case.method, case.path, params=query, **body))
            assert answer.status_code < 500, (case.method, case.path, query, body, answer.text)
            asked.setdefault(case.path, set()).add(answer.status_code)

        ask()
    assert len(asked) > 12
    assert any(200 in codes for codes in asked.values())
    assert {path.name for path in tmp_path.iterdir()} == {"a"}


async def _ask(app: object, method: str, path: str, **more: object) -> httpx.Response:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("127.0.0.1", 5))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.request(method, path, **more)  # type: ignore[arg-type]
