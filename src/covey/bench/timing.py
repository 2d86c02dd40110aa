"""Interleaved timing: both sides of a ratio run in the same minutes."""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def all_cores() -> Iterator[None]:
    """Let PyTorch use as many threads as this process has cores, whatever the environment says."""
    before = torch.get_num_threads()
    torch.set_num_threads(cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def interleaved(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each function, called in turn `repeats` times after one warm-up call."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(repeats + 1):
        for name, function in functions.items():
            gc.collect()
            start = time.perf_counter()
            function()
            if number:
                times[name].append(time.perf_counter() - start)
    return times


def ratio(slow: list[float], fast: list[float]) -> dict[str, float]:
    """Speed-up of `fast` over `slow`, pair by pair."""
    return interval([a / b for a, b in zip(slow, fast, strict=True)])


def interval(values: list[float]) -> dict[str, float]:
    """Median with the 10 % and 90 % quantiles."""
    low, high = np.quantile(values, [0.1, 0.9])
    return {"median": statistics.median(values), "low": float(low), "high": float(high)}


def timed(job: Callable[[], object], repeats: int) -> dict[str, float]:
    """Median and minimum wall time of a job in seconds, after one warm-up run."""
    job()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - start)
    return {"median_s": statistics.median(seconds), "min_s": min(seconds)}
