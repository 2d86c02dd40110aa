"""The long-lived process of a device: keeps torch, data and ledger loaded, and answers its ClientApp.

The socket is in a folder that only its owner may enter, and both sides authenticate with a random key that only the
owner may read.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import sys
import tempfile
import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from covey.deploy.app.wire import ADDRESS, KEY, SOCKET_PATH_BYTES, Packet, pack, unpack
from covey.deploy.device import Device
from covey.deploy.device_state import make_private
from covey.deploy.folders import DeviceFolder
from covey.errors import OutputError


class Worker:
    """Serves the device of a folder, one request at a time; a context manager.

    The folder is locked before its ledger is read, to avoid a race with another process that still charges it.
    `budget_epsilon` and `metrics` are those of `Device`.
    """

    def __init__(self, folder: DeviceFolder, *, budget_epsilon: float | None = None, metrics: bool = False) -> None:
        make_private(folder.private)
        self._lock = _locked(folder.private)
        self._borrowed: Path | None = None
        try:
            self.device = Device(folder, budget_epsilon=budget_epsilon, metrics=metrics)
            self._listener = self._listen(folder.private)
        except BaseException:
            self._lock.close()
            raise
        self._closed = False

    def _listen(self, private: Path) -> Listener:
        path = private / "worker.sock"
        if len(str(path).encode()) > SOCKET_PATH_BYTES:
            self._borrowed = Path(tempfile.mkdtemp(prefix="covey-"))
            path = self._borrowed / "worker.sock"
        path.unlink(missing_ok=True)
        key = secrets.token_bytes(32)
        _write_private(private / KEY, key)
        _write_private(private / ADDRESS, str(path).encode())
        listener = Listener(str(path), family="AF_UNIX", authkey=key)
        os.chmod(path, 0o600)
        return listener

    def serve(self) -> None:
        """Answer requests until `close`; raises if the socket fails."""
        while not self._closed:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # a failed handshake
            except OSError:
                if self._closed:
                    return
                raise
            with connection:
                self._answer(connection)

    def start(self) -> threading.Thread:
        """Run `serve` in a background thread."""
        thread = threading.Thread(target=self.serve, name="device", daemon=True)
        thread.start()
        return thread

    def _answer(self, connection: Connection) -> None:
        try:
            connection.send_bytes(pack(self.respond(unpack(connection.recv_bytes()))))
        except Exception as error:  # this client gets no answer; the next one is served
            print(f"a request could not be answered ({type(error).__name__}: {error})", file=sys.stderr, flush=True)

    def respond(self, request: Packet) -> Packet:
        """The device's answer."""
        return self.device.answer(request)

    def close(self) -> None:
        """Stop serving; idempotent."""
        if not self._closed:
            self._closed = True
            self._listener.close()
            if self._borrowed is not None:
                shutil.rmtree(self._borrowed, ignore_errors=True)
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _locked(folder: Path) -> IO[str]:
    """The folder's lock, held while the file is open: two processes must not charge the same ledger."""
    try:
        file = open(folder / "lock", "w", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise OutputError(f"cannot write '{folder / 'lock'}' ({error.strerror}); make the folder writable") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise OutputError(f"'{folder}' is in use: this device is already running; stop it first") from None
    return file


def _write_private(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
