"""Runs with devices without their pictures, which take ten times as long as the rounds."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_report(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No report is drawn, except in tests that name it."""
    if "report" not in request.node.name:
        monkeypatch.setattr("covey.deploy.server.write_report", lambda *given: None)
