"""Protocol between driver and contestant: JSON lines over two pipes; standard library only, for use by every peer.

A contestant reports that it is ready, then plays one turn per input line and answers with its seconds. All
contestants of a comparison are alive at the same time and take turns, so that load spikes affect all of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


class Turns:
    """The contestant's side. Output of libraries is redirected to standard error."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.work: dict[str, Any] = json.loads(sys.argv[1])

    def ready(self) -> None:
        """Report that setup is finished."""
        self.tell({"ready": True})

    def asked(self) -> bool:
        """Wait for the driver; returns whether it requests another turn."""
        return bool(sys.stdin.readline())

    def tell(self, answer: dict[str, Any]) -> None:
        """Send one line."""
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def play(self, turn: Callable[[], float]) -> None:
        """Time `turn` on each request of the driver; it returns how far the models moved, or 0."""
        self.ready()
        while self.asked():
            started = time.perf_counter()
            moved = turn()
            self.tell({"seconds": time.perf_counter() - started, "moved": moved})
