"""How the driver and a contestant talk: lines of JSON over two pipes; for Python alone, so that every peer can use it.

A contestant says that it is ready, then plays one turn for each line it is given and answers with its seconds. All
contestants of a comparison live at the same time and play in turn, so that a busy minute hits all of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


class Turns:
    """A contestant's side. Whatever a library prints goes to the error stream."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.work: dict[str, Any] = json.loads(sys.argv[1])

    def ready(self) -> None:
        """Say that all is set up."""
        self.tell({"ready": True})

    def asked(self) -> bool:
        """Wait for the driver: whether it asks for another turn."""
        return bool(sys.stdin.readline())

    def tell(self, answer: dict[str, Any]) -> None:
        """Send one line."""
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def play(self, turn: Callable[[], float]) -> None:
        """Time `turn` whenever the driver asks; it returns how far the models moved, or 0."""
        self.ready()
        while self.asked():
            started = time.perf_counter()
            moved = turn()
            self.tell({"seconds": time.perf_counter() - started, "moved": moved})
