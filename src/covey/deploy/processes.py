"""Starts, monitors and stops Flower's processes.

Everything runs with a separate FLWR_HOME, without telemetry, update check or installation of dependencies. Each process
leads its own process group, so that its children end with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Self

import tomli_w

from covey.errors import DeployError, OutputError
from covey.files import make_folder

_STOP_S = 10.0
_APP_FILES = ("__init__.py", "client.py", "records.py", "server.py", "wire.py")
#: Pattern of the names of nodes, and of their key files, that are bound to a user; the group is its number.
NODE_NAME = r"user-(\d+)"
#: Flower's message for a key that is already registered.
_KNOWN_KEY = "public key already in use"


@dataclass(frozen=True)
class Tls:
    """TLS files: the CA certificate, and for the SuperLink its own certificate and key."""

    authority: Path
    certificate: Path | None = None
    key: Path | None = None


def environment(home: Path) -> dict[str, str]:
    """The environment variables of Flower's processes."""
    scripts = str(Path(sys.executable).parent)
    return os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PATH": scripts + os.pathsep + os.environ.get("PATH", ""),
    }


def superlink_command(host: str, port: int, tls: Tls | None, database: Path | None, *, node_keys: bool) -> list[str]:
    """The command of a SuperLink."""
    command = [
        "flower-superlink", "--host", host, "--port", str(port), "--isolation", "subprocess",
        "--disable-runtime-dependency-installation",
    ]  # fmt: skip
    if tls is None:
        command.append("--insecure")
    else:
        given = (("--ssl-ca-certfile", tls.authority), ("--ssl-certfile", tls.certificate), ("--ssl-keyfile", tls.key))
        command += [part for name, path in given for part in (name, str(path))]
    if node_keys:
        command.append("--enable-supernode-auth")
    return command + (["--database", str(database)] if database is not None else [])


def supernode_command(address: str, port: int, private: Path, tls: Tls | None, node_key: Path | None) -> list[str]:
    """The command of a SuperNode whose ClientApp talks to the worker of the device with this private folder."""
    command = [
        "flower-supernode", "--superlink", address, "--host", "127.0.0.1", "--port", str(port),
        "--isolation", "subprocess", "--node-config", f"covey-folder={json.dumps(str(private.resolve()))}",
    ]  # fmt: skip
    command += ["--insecure"] if tls is None else ["--root-certificates", str(tls.authority)]
    return command + (["--auth-supernode-private-key", str(node_key)] if node_key is not None else [])


def write_app(folder: Path) -> Path:
    """Write the Flower app to an empty `folder`."""
    source = resources.files("covey.deploy") / "app"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "covey_app").mkdir(parents=True)
    (folder / "pyproject.toml").write_bytes((source / "pyproject.toml").read_bytes())
    for name in _APP_FILES:
        (folder / "covey_app" / name).write_bytes((source / name).read_bytes())
    return folder


def write_connection(home: Path, address: str, tls: Tls | None) -> None:
    """Write the config.toml by which Flower's own command finds the SuperLink, under the name `covey`."""
    make_folder(home, "--home")
    connection: dict[str, object] = {"address": address, "insecure": tls is None}
    if tls is not None:
        connection["root-certificates"] = str(tls.authority.resolve())
    content = {"superlink": {"default": "covey", "covey": connection}}
    try:
        (home / "config.toml").write_bytes(tomli_w.dumps(content).encode())
    except OSError as error:
        raise OutputError(f"cannot write '{home}' ({error.strerror}); choose another folder with --home") from None


def submit_command(app: Path, run_folder: Path, token: str) -> list[str]:
    """The command that submits the run in `run_folder` and exits with it; `token` identifies this submission."""
    return [
        "flwr",
        "run",
        str(app),
        "covey",
        "--stream",
        "--run-config",
        f"folder={json.dumps(str(run_folder.resolve()))} token={json.dumps(token)}",
    ]


def reachable(host: str) -> str:
    """The address to connect to for a local server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)


def free_port() -> int:
    """A free local port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Started:
    """A context manager that ends all its processes on exit; their outputs go to files in `logs`."""

    def __init__(self, logs: Path, surroundings: Mapping[str, str]) -> None:
        self._logs, self._environment = logs, dict(surroundings)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        make_folder(logs, "--home")

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process in its own process group."""
        with open(self.log(name), "ab") as log:
            process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment,
                start_new_session=True,
            )  # fmt: skip
        self.processes[name] = process
        return process

    def log(self, name: str) -> Path:
        """The log file of a process."""
        return self._logs / f"{name}.log"

    def finish(self, name: str, command: Sequence[str], wait_s: float) -> tuple[int, str]:
        """Run a process to its end: exit code and output; a `DeployError` on timeout."""
        before = self.log(name).stat().st_size if self.log(name).is_file() else 0
        process = self.start(name, command)
        try:
            code = process.wait(wait_s)
        except subprocess.TimeoutExpired:
            raise DeployError(f"'{name}' has not ended after {wait_s:g} s; see {self.log(name)}") from None
        finally:
            self.stop(name)
        return code, self.log(name).read_bytes()[before:].decode("utf-8", "replace")

    def wait_for_port(self, name: str, port: int, wait_s: float, host: str = "127.0.0.1") -> None:
        """Wait until a process listens on `host`; an error quotes its last output."""
        host = reachable(host)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            self.check(name)
            with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
                return
            time.sleep(0.2)
        raise DeployError(f"'{name}' does not listen on port {port} of {host} after {wait_s:g} s; see {self.log(name)}")

    def check(self, name: str) -> None:
        """Raise an error if a process has exited."""
        code = self.processes[name].poll()
        if code is not None:
            raise DeployError(f"'{name}' ended with code {code}: {last_line(self.log(name))}; see {self.log(name)}")

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a process and its children."""
        process = self.processes.pop(name)
        _signal(process, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        _signal(process, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
        for process in self.processes.values():
            _signal(process, signal.SIGKILL)
            process.wait()
        self.processes = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def register_node(started: Started, key: Path, wait_s: float) -> None:
    """Register the node with this public key at the SuperLink `covey`; idempotent.

    A file named user-007.pub binds its key to user 7.
    """
    name = f"register-{key.stem}"
    command = ["flwr", "supernode", "register", str(key), "covey"]
    if re.fullmatch(NODE_NAME, key.stem):
        command += ["--name", key.stem]
    code, printed = started.finish(name, command, wait_s)
    if code != 0 and _KNOWN_KEY not in " ".join(printed.lower().split()):
        raise DeployError(f"'{key}' could not be registered: {last_line(started.log(name))}; see {started.log(name)}")


def end_family(home: Path) -> None:
    """Kill all processes with this FLWR_HOME, also orphans.

    Flower's per-message processes can outlive the run and the SuperNode that started them. Without /proc nothing is
    done.
    """
    mark = f"FLWR_HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            process = int(folder.name)
            if process != os.getpid() and mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(process, signal.SIGKILL)


def last_line(path: Path) -> str:
    """The last non-empty line of a log."""
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "it printed nothing")
    return "it printed nothing"


def _signal(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Send a signal to the group of a process, also when the process itself has exited."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, how)
