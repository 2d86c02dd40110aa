"""Worker processes: each has its own module and executes one call at a time on shared arrays."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import traceback
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from covey.errors import CoveyError, ScenarioError
from covey.federated.losses import Loss
from covey.federated.shared import Handle, SharedArrays
from covey.federated.threads import tune_allocator
from covey.federated.training import LocalTraining
from covey.federated.user_compute import Announcer, NoiseFunction, UserCompute

#: A method of `UserCompute` and its arguments.
Call = tuple[str, tuple[Any, ...]]


def pack(
    module: nn.Module,
    seed: int,
    noise: NoiseFunction,
    training: LocalTraining,
    announcer: Announcer | None,
    gradients: str,
    loss: Loss,
) -> npt.NDArray[np.uint8]:
    """The pickled arguments of `UserCompute`, apart from the arrays, as bytes; every worker gets a copy."""
    try:
        return np.frombuffer(pickle.dumps((module, seed, noise, training, announcer, gradients, loss)), np.uint8)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ScenarioError(
            f"the module, the noise function or a part cannot be sent to worker processes ({error}); define its class"
            " at the top level of a file that can be imported, or use 1 worker"
        ) from error


class Workers:
    """`count` worker processes on the shared arrays of handle `arrays`, which include a `pack` named package."""

    def __init__(self, count: int, arrays: Handle) -> None:
        self._processes: list[SpawnProcess] = []
        self._connections: list[Connection] = []
        self._started = False
        context = get_context("spawn")
        try:
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, arrays), daemon=True)
                with _interrupts_blocked():
                    process.start()
                self._processes.append(process)
                self._connections.append(ours)
                theirs.close()
        except BaseException:
            self.close()
            raise

    def run(self, calls: Sequence[Call], costs: Sequence[float], uploads: Handle | None = None) -> list[Any]:
        """The results of `calls` in their order; the most expensive are started first.

        `uploads` is the array that `train` writes to. An exception in a call is raised here and the workers stay
        usable; any other exception, such as Ctrl-C, ends them.
        """
        try:
            if not self._started:
                for index in range(len(self._processes)):
                    error, _ = self._receive(index)
                    if error is not None:
                        raise error
                self._started = True
            results, errors = self._dispatch(calls, costs, uploads)
        except BaseException:
            self.close()
            raise
        if errors:
            raise errors[min(errors)]
        return results

    @property
    def alive(self) -> bool:
        """Whether there are running workers."""
        return bool(self._processes)

    def close(self) -> None:
        """Terminate all processes at once; they hold no state worth saving."""
        for process in self._processes:
            process.terminate()
        for process, connection in zip(self._processes, self._connections, strict=True):
            process.join()
            connection.close()
        self._processes, self._connections = [], []

    def _dispatch(
        self, calls: Sequence[Call], costs: Sequence[float], uploads: Handle | None
    ) -> tuple[list[Any], dict[int, Exception]]:
        """The results, and the errors by index of the call; after an error no more calls are started."""
        results: list[Any] = [None] * len(calls)
        errors: dict[int, Exception] = {}
        left = [int(number) for number in np.argsort(costs, kind="stable")]
        busy: dict[int, int] = {}
        idle = list(range(len(self._processes)))
        while left or busy:
            while left and idle:
                worker, number = idle.pop(), left.pop()
                self._send(worker, (*calls[number], uploads))
                busy[worker] = number
            for worker in self._ready(busy):
                number = busy.pop(worker)
                idle.append(worker)
                error, results[number] = self._receive(worker)
                if error is not None:
                    errors[number] = error
                    left.clear()
        return results, errors

    def _ready(self, workers: Iterable[int]) -> list[int]:
        """Those of `workers` that have a result or have exited; blocks until there is one."""
        events: dict[Any, int] = {}
        for worker in workers:
            events[self._connections[worker]] = events[self._processes[worker].sentinel] = worker
        return sorted({events[event] for event in wait(list(events))})

    def _send(self, worker: int, message: tuple[Any, ...]) -> None:
        try:
            self._connections[worker].send(message)
        except OSError:
            self._raise_exit(worker)

    def _receive(self, worker: int) -> tuple[Exception | None, Any]:
        self._ready([worker])
        try:
            if self._connections[worker].poll():
                answer: tuple[Exception | None, Any] = self._connections[worker].recv()
                return answer
        except (EOFError, OSError):
            pass
        self._raise_exit(worker)

    def _raise_exit(self, worker: int) -> NoReturn:
        process = self._processes[worker]
        process.join()
        code = process.exitcode or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        advice = (
            "the machine may be out of memory: use fewer workers"
            if self._started
            else "a script that starts workers must do so under `if __name__ == '__main__':`"
        )
        raise CoveyError(f"worker process {worker} {how} while it was needed; {advice}, or use 1 worker") from None


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in processes started inside: their parent handles Ctrl-C and ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, handle: Handle) -> None:
    """Worker loop: answer calls with (None, result) or (error, None) until the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    tune_allocator()
    try:
        shared = SharedArrays.attach(handle)
        module, *given = pickle.loads(shared.arrays["package"].tobytes())
        work = UserCompute(module, shared.arrays, *given)
        uploads: SharedArrays | None = None
        connection.send((None, None))
        while True:
            method, arguments, target = connection.recv()
            try:
                if target is not None and (uploads is None or uploads.handle != target):
                    del work.uploads
                    if uploads is not None:
                        uploads.close()
                    uploads = SharedArrays.attach(target)
                    work.uploads = uploads.arrays["uploads"]
                answer: tuple[Exception | None, Any] = (None, getattr(work, method)(*arguments))
            except Exception as error:
                answer = (_sendable(error), None)
            connection.send(answer)
    except (EOFError, OSError):
        pass  # the parent has exited
    except Exception as error:
        with contextlib.suppress(OSError):
            connection.send((_sendable(error), None))
    finally:
        # Skips the interpreter's clean-up, which would warn about shared memory still in use.
        os._exit(0)


def _sendable(error: Exception) -> Exception:
    """The error with its traceback as a note, or a RuntimeError with its text where it cannot be pickled."""
    text = "".join(traceback.format_exception(error))
    try:
        error = pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"In a worker process:\n{text}")
    return error
