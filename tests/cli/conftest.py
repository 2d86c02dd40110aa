"""The command as a process of its own: a fork where only what it does is looked at, a start where the start is too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.forks import Forks
from tests.processes import Ended, run

Covey = Callable[..., Ended]


def environment(**more: str) -> dict[str, str]:
    """Ours, with one compute thread and lines of a known width."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **more}


@pytest.fixture(scope="session")
def covey(forks: Forks) -> Covey:
    """Exit code and output of `covey ARGUMENTS` in a folder, as a fork."""

    def called(*arguments: str, cwd: Path, **more: str) -> Ended:
        return forks.covey(*arguments, cwd=cwd, env=environment(**more))

    return called


def covey_started(*arguments: str, cwd: Path, **more: str) -> Ended:
    """The same from the start: `python -m covey ARGUMENTS`."""
    return run([sys.executable, "-m", "covey", *arguments], cwd=cwd, env=environment(**more))
