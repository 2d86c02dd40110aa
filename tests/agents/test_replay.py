from __future__ import annotations

import numpy as np

from covey.agents import replay as module
from covey.agents.replay import Replay


def rows(start: int, count: int) -> dict[str, np.ndarray]:
    return {"a": np.arange(start, start + count, dtype=np.float64), "b": np.ones((count, 2, 3), dtype=np.float32)}


def test_the_oldest_rows_are_replaced() -> None:
    replay = Replay(5, rows(0, 1))
    replay.add(rows(0, 4))
    assert len(replay) == 4
    replay.add(rows(4, 3))
    assert len(replay) == 5
    assert sorted(replay.arrays["a"]) == [2, 3, 4, 5, 6]


def test_samples_come_from_what_is_kept() -> None:
    replay = Replay(100, rows(0, 1))
    replay.add(rows(10, 20))
    sample = replay.sample(8, np.random.default_rng(0))
    assert sample["a"].shape == (8,)
    assert sample["a"].min() >= 10
    assert len(replay.sample(50, np.random.default_rng(0))["a"]) == 20


def test_large_transitions_shorten_the_memory(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    replay = Replay(100, rows(0, 1))
    assert replay.capacity == 1000 // (8 + 24)


def test_clearing_forgets() -> None:
    replay = Replay(5, rows(0, 1))
    replay.add(rows(0, 4))
    replay.clear()
    assert len(replay) == 0
