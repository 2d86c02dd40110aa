"""Plot data of runs, loaded from their folders and cached."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from covey.errors import CoveyError, ResumeError
from covey.report.page_data import frame_data, report_data, site_data
from covey.simulation import History
from covey.simulation.checkpoint import CHECKPOINT
from covey.simulation.load_run import read_history

#: Size of the cache, in runs.
_KEPT = 8


class Pictures:
    """LRU cache of plot data, invalidated when a run's checkpoint changes; thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Path, str], tuple[int, dict[str, Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def whole(self, path: Path) -> dict[str, Any]:
        """The data of the whole report, see `covey.report.page_data`."""
        return self._data(path, "whole")

    def newest(self, path: Path) -> dict[str, Any]:
        """The last round only: `site`, and `frame` if a round has been played."""
        return self._data(path, "newest")

    def _data(self, path: Path, part: str) -> dict[str, Any]:
        try:
            changed = os.lstat(path / CHECKPOINT).st_mtime_ns
        except OSError:
            raise ResumeError("it has no checkpoint, so there is nothing to draw") from None
        with self._lock:
            known = self._kept.get((path, part))
        if known is not None and known[0] == changed:
            return known[1]
        history = _read(path)
        data = report_data(history) if part == "whole" else _newest(history)
        with self._lock:
            self._kept[(path, part)] = changed, data
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return data


def _read(path: Path) -> History:
    try:
        return read_history(path)
    except CoveyError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise ResumeError(f"its checkpoint does not fit its scenario ({type(error).__name__}: {error})") from None


def _newest(history: History) -> dict[str, Any]:
    data: dict[str, Any] = {"site": site_data(history)}
    if history.records:
        data["frame"] = frame_data(history, history.records[-1])
    return data
