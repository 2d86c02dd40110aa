"""One interface for processes of this machine and for a Ray cluster; results do not depend on which it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from covey.errors import CoveyError

T = TypeVar("T")
K = TypeVar("K")
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
        from covey.pools.cluster import RayPool  # Ray is optional, and takes a second to import

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
    there is room, so that it may depend on the results so far.
    """
    running: dict[Future[T], K] = {}
    while True:
        while len(running) < pool.size and (piece := more()) is not None:
            name, function, arguments = piece
            running[pool.submit(function, *arguments)] = name
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future.result()


class _Processes:
    """Processes of this machine."""

    def __init__(self, processes: int) -> None:
        self.size = processes
        self._pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_start)

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Begin a piece of work."""
        try:
            return _Checked(self._pool.submit(function, *arguments))
        except BrokenProcessPool:
            raise _broken() from None

    def close(self, *, abandon: bool) -> None:
        """End all processes."""
        for process in list((self._pool._processes or {}).values()) if abandon else ():
            process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)


class _Checked(Future[T]):
    """The result of a piece of work; a process that died is one sentence."""

    def __init__(self, inner: Future[T]) -> None:
        super().__init__()
        inner.add_done_callback(self._take)

    def _take(self, inner: Future[T]) -> None:
        error = None if inner.cancelled() else inner.exception()
        if inner.cancelled():
            self.cancel()
        elif isinstance(error, BrokenProcessPool):
            self.set_exception(_broken())
        elif error is not None:
            self.set_exception(error)
        else:
            self.set_result(inner.result())


def _broken() -> CoveyError:
    return CoveyError(
        "a worker process ended before its time, perhaps for lack of memory; what is finished is kept: give the same"
        " command again, with --processes 1 if memory is short"
    )


def _start() -> None:
    """A worker leaves Ctrl-C to its parent and computes with one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    one_thread()


def one_thread() -> None:
    """Compute with one thread from now on, so that results do not depend on the number of cores."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
