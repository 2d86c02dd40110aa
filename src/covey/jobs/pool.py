"""One interface for local worker processes and for a Ray cluster; results do not depend on the choice."""

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
#: Retries of a job when its worker or machine is lost.
RETRIES = 3
#: A job of a pool: name, function and arguments.
PoolJob = tuple[K, Callable[..., T], tuple[Any, ...]]


class Pool(Protocol):
    """Runs several jobs in parallel, each with one thread."""

    @property
    def size(self) -> int:
        """Current number of jobs that run in parallel."""

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Submit a job; function and arguments must be picklable, and the function one of covey's."""

    def close(self, *, abandon: bool) -> None:
        """Shut down; with `abandon`, running jobs are cancelled instead of awaited."""


@contextmanager
def open_pool(processes: int, ray: str | None = None) -> Iterator[Pool]:
    """A pool, closed on exit; on an error or Ctrl-C, running jobs are cancelled.

    processes: number of local worker processes; ray: instead, the address of a Ray cluster, `auto` for the one that
    this machine belongs to, or `local` to start one here with that many processes.
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


def results(pool: Pool, more: Callable[[], PoolJob[K, T] | None]) -> Iterator[tuple[K, T]]:
    """Names and results of jobs, in order of completion.

    `more` returns the next job, or None when none can start before another one finishes. It is called whenever a
    worker is free, so that it may depend on the results so far. Finished results are yielded before an error is raised.
    """
    running: dict[Future[T], K] = {}
    while True:
        while len(running) < pool.size and (job := more()) is not None:
            name, function, arguments = job
            running[pool.submit(function, *arguments)] = name
        if not running:
            return
        done = wait(running, return_when=FIRST_COMPLETED).done
        for future in sorted(done, key=lambda future: future.exception() is not None):
            yield running.pop(future), future.result()


def in_order(jobs: Iterable[PoolJob[K, T]]) -> Callable[[], PoolJob[K, T] | None]:
    """`more` of `results` for jobs that do not depend on each other."""
    left = iter(jobs)
    return lambda: next(left, None)


class _Processes:
    """Local worker processes; when one dies, all are replaced and their jobs retried."""

    def __init__(self, processes: int) -> None:
        self.size = processes
        self._lock = threading.Lock()
        self._pool, self._closed = self._start(), False

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Submit a job."""
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
        f"a worker process died, {RETRIES + 1} times, perhaps for lack of memory; finished jobs are kept: run the same"
        " command again to resume, with --processes 1 if memory is short"
    )


def _start_worker() -> None:
    """Initialise a worker: it ignores SIGINT, exits with its parent, and computes with one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    compute_with_one_thread()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def compute_with_one_thread() -> None:
    """Use one thread from now on, so that results do not depend on the number of cores."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
