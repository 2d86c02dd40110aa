"""One interface for processes of this machine and for a Ray cluster; results do not depend on which it is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from typing import Any, Protocol, TypeVar

from covey.errors import CoveyError

T = TypeVar("T")
K = TypeVar("K")
#: How often a piece is begun again when its worker or machine is lost.
RETRIES = 3
#: A name, a function and its arguments.
Piece = tuple[K, Callable[..., T], tuple[Any, ...]]


class Pool(Protocol):
    """Something that computes several pieces of work at once, each with one thread."""

    @property
    def size(self) -> int:
        """Pieces that are computed at once, now."""

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Begin a piece of work; function and arguments must be picklable, and the function one of covey's."""

    def close(self, *, abandon: bool) -> None:
        """End; with `abandon`, without waiting for what is under way."""


@contextmanager
def open_pool(processes: int, ray: str | None = None) -> Iterator[Pool]:
    """A pool, closed at the end; what is under way when an error or Ctrl-C comes is given up.

    processes: of this machine; ray: instead, the address of a Ray cluster, `auto` for the one that this machine
    belongs to, or `local` for one that is started here with that many processes.
    """
    pool: Pool
    if ray is None:
        pool = _Processes(processes)
    else:
        from covey.jobs.cluster import RayPool  # Ray is optional, and takes a second to import

        pool = RayPool(ray, processes)
    finished = False
    try:
        yield pool
        finished = True
    finally:
        pool.close(abandon=not finished)


def results(pool: Pool, more: Callable[[], Piece[K, T] | None]) -> Iterator[tuple[K, T]]:
    """Names and results of pieces of work, in the order in which they are finished.

    `more` gives the next piece, or None when none can be begun before another is finished. It is asked as long as
    there is room, so that it may depend on the results so far. An error comes after the results that are there.
    """
    running: dict[Future[T], K] = {}
    while True:
        while len(running) < pool.size and (piece := more()) is not None:
            name, function, arguments = piece
            running[pool.submit(function, *arguments)] = name
        if not running:
            return
        done = wait(running, return_when=FIRST_COMPLETED).done
        for future in sorted(done, key=lambda future: future.exception() is not None):
            yield running.pop(future), future.result()


def in_order(pieces: Iterable[Piece[K, T]]) -> Callable[[], Piece[K, T] | None]:
    """`more` of `results` for pieces that do not depend on each other."""
    left = iter(pieces)
    return lambda: next(left, None)


class _Processes:
    """Processes of this machine; all are replaced when one dies, and what they were at is begun again."""

    def __init__(self, processes: int) -> None:
        self.size = processes
        self._lock = threading.Lock()
        self._pool, self._closed = self._start(), False

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Begin a piece of work."""
        answer: Future[T] = Future()
        answer.set_running_or_notify_cancel()
        self._begin(answer, partial(function, *arguments), RETRIES)
        return answer

    def close(self, *, abandon: bool) -> None:
        """End all processes."""
        with self._lock:
            self._closed = True
        for process in list((self._pool._processes or {}).values()) if abandon else ():
            process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.size, mp_context=get_context("spawn"), initializer=_start_worker)

    def _begin(self, answer: Future[T], work: Callable[[], T], retries: int) -> None:
        while True:
            with self._lock:
                pool = self._pool
            try:
                inner = pool.submit(work)
            except BrokenProcessPool:
                self._replace(pool)
                continue
            inner.add_done_callback(partial(self._take, pool, answer, work, retries))
            return

    def _take(
        self, pool: ProcessPoolExecutor, answer: Future[T], work: Callable[[], T], retries: int, inner: Future[T]
    ) -> None:
        error = CancelledError() if inner.cancelled() else inner.exception()
        if error is None:
            answer.set_result(inner.result())
        elif not isinstance(error, BrokenProcessPool):
            answer.set_exception(error)
        elif self._closed or not retries:
            answer.set_exception(_broken())
        else:
            self._replace(pool)
            self._begin(answer, work, retries - 1)

    def _replace(self, broken: ProcessPoolExecutor) -> None:
        with self._lock:
            if self._pool is broken:
                self._pool = self._start()
                broken.shutdown(wait=False)


def _broken() -> CoveyError:
    return CoveyError(
        f"a worker process ended before its time, {RETRIES + 1} times, perhaps for lack of memory; what is finished is"
        " kept: give the same command again, with --processes 1 if memory is short"
    )


def _start_worker() -> None:
    """A worker leaves Ctrl-C to its parent, ends with it, and computes with one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    compute_with_one_thread()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def compute_with_one_thread() -> None:
    """From now on, so that results do not depend on the number of cores."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
