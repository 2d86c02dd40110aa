"""Jobs on a Ray cluster: retried when a worker or a machine is lost, refused by machines with other versions."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import platform
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from importlib import metadata
from typing import Any, TypeVar

from covey.errors import CoveyError, ScenarioError
from covey.extras import has_extra, require_extra
from covey.jobs.pool import RETRIES, compute_with_one_thread

T = TypeVar("T")


class RayPool:
    """A Ray cluster; the same version of covey must be installed on its machines.

    address: `local` starts one on this machine with `processes` workers; `auto`, HOST:PORT or ray://HOST:PORT
    connects to a running one.
    """

    def __init__(self, address: str, processes: int) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Without this, Ray hides accelerators from tasks that declare none; covey computes on CPUs only.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        require_extra("ray", "--ray")
        ray: Any = importlib.import_module("ray")
        self._ray = ray
        local = {"num_cpus": processes, "include_dashboard": False}
        options: dict[str, Any] = local if address == "local" else {}
        terminate = signal.getsignal(signal.SIGTERM)
        try:
            _check_listening(address)
            ray.init(
                address=address,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
                log_to_driver=False,
                logging_level=logging.ERROR,
                **options,
            )
        except (OSError, RuntimeError, ValueError) as error:
            text = str(error).strip().splitlines()
            raise ScenarioError(
                f"there is no Ray cluster at '{address}' ({text[0] if text else type(error).__name__}); start one with"
                " `ray start --head`, give its HOST:PORT (and, if it asks for a token, RAY_AUTH_MODE=token and"
                " RAY_AUTH_TOKEN), or use --ray local"
            ) from None
        finally:
            # Ray installs its own handler.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, terminate)
        self._remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_answer)
        self._running: dict[Future[Any], Any] = {}

    @property
    def size(self) -> int:
        """Current number of CPUs of the cluster: machines may join and leave."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Submit a job to the cluster."""
        reference = self._remote.remote(_software(), function, arguments)
        answer: Future[T] = Future()
        answer.set_running_or_notify_cancel()
        self._running[answer] = reference
        reference.future().add_done_callback(lambda inner: self._take(inner, answer))
        return answer

    def close(self, *, abandon: bool) -> None:
        """Disconnect from the cluster, or stop it if it was started here."""
        for reference in list(self._running.values()) if abandon else ():
            with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
                self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _take(self, inner: Future[Any], answer: Future[Any]) -> None:
        self._running.pop(answer, None)
        error = inner.exception()
        if error is None:
            fault, value = inner.result()
            if fault is None:
                answer.set_result(value)
            else:
                answer.set_exception(fault)
        elif isinstance(error, self._ray.exceptions.RayTaskError):
            answer.set_exception(error.cause)
        elif isinstance(error, self._ray.exceptions.RayError):
            answer.set_exception(
                CoveyError(
                    f"a job failed on the cluster ({type(error).__name__}, after {RETRIES + 1} attempts);"
                    " finished jobs are kept: run the same command again to resume"
                )
            )
        else:
            answer.set_exception(error)


def _check_listening(address: str) -> None:
    """Raise an OSError if nothing listens at HOST:PORT; Ray itself would retry for minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if separator and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()


def _answer(
    software: dict[str, str], function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[CoveyError | None, Any]:
    """On a worker: the result, or an error that a user can act on."""
    compute_with_one_thread()
    here = _software()
    if here != software:
        different = ", ".join(
            f"{name} {here[name]} instead of {software[name]}" for name in here if here[name] != software[name]
        )
        where = platform.node()
        return CoveyError(f"the machine '{where}' of the cluster has {different}; install the same there"), None
    try:
        return None, function(*arguments)
    except CoveyError as error:
        return error, None


def _software() -> dict[str, str]:
    """Versions of the packages that results depend on; `none` for numba if it is not installed."""
    found = {name: metadata.version(name) for name in ("covey", "numpy", "scipy", "scikit-learn", "torch")}
    return found | {"numba": metadata.version("numba") if has_extra("fast") else "none"}
