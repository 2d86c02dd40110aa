"""The local socket between a device's worker and its ClientApp, the Flower app, and certificates."""

from __future__ import annotations

import ast
import fcntl
import ssl
import stat
import sys
from contextlib import ExitStack
from multiprocessing import AuthenticationError
from pathlib import Path

import pytest
from tests.deploy.near import make_devices, small
from tests.processes import started

from covey.deploy.app import wire
from covey.deploy.app.wire import ADDRESS, KEY, Packet, ask
from covey.deploy.certificates import make_certificates
from covey.deploy.device import Device
from covey.deploy.device_process import Worker
from covey.deploy.folders import DeviceFolder
from covey.deploy.processes import end_family, environment, write_app
from covey.errors import DataError, OutputError


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return make_devices(small(), 0, tmp_path / "site")[0]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_worker_answers_whoever_has_the_key(device: Device) -> None:
    private = device.folder.private
    with Worker(device.folder) as worker:
        worker.start()
        for _ in range(3):
            assert ask(private, Packet({"kind": "hello"})).header["samples"] == device.samples
        assert mode(private) == 0o700
        assert mode(private / KEY) == 0o600
        (private / KEY).write_bytes(b"x" * 32)
        with pytest.raises(AuthenticationError):
            ask(private, Packet({"kind": "hello"}))
    with pytest.raises((FileNotFoundError, ConnectionRefusedError)):
        ask(private, Packet({"kind": "hello"}))


def test_nonsense_on_the_socket_does_not_end_the_worker(device: Device) -> None:
    private = device.folder.private
    with Worker(device.folder) as worker:
        worker.start()
        key, address = (private / KEY).read_bytes(), (private / ADDRESS).read_text(encoding="utf-8")
        with wire.Client(address, family="AF_UNIX", authkey=key) as connection:
            connection.send_bytes(b"nonsense")
        with wire.Client(address, family="AF_UNIX", authkey=key):
            pass
        assert ask(private, Packet({"kind": "hello"})).header["status"] == "ok"


def test_a_device_runs_once(device: Device) -> None:
    with Worker(device.folder), pytest.raises(OutputError, match="already running"):
        Worker(device.folder)
    Worker(device.folder).close()


def test_the_ledger_is_read_after_the_lock_is_taken(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def locked_device(folder: DeviceFolder, **settings: object) -> Device:
        with open(folder.private / "lock", "w", encoding="utf-8") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened.append(folder.user)
        return device

    monkeypatch.setattr("covey.deploy.device_process.Device", locked_device)
    with Worker(device.folder), pytest.raises(OutputError, match="already running"):
        Worker(device.folder)
    assert opened == [0]


def test_a_device_that_cannot_be_opened_leaves_its_lock(device: Device) -> None:
    data = device.folder.path / "data.npz"
    content = data.read_bytes()
    data.write_bytes(b"")
    with pytest.raises(DataError):
        Worker(device.folder)
    data.write_bytes(content)
    Worker(device.folder).close()


@pytest.mark.parametrize("error", [IndexError("list index"), OSError(28, "No space left on device"), MemoryError()])
def test_whatever_a_request_leads_to_the_next_one_is_answered(
    device: Device, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    private = device.folder.private
    with Worker(device.folder) as worker:
        thread = worker.start()

        def fail(request: Packet) -> Packet:
            raise error

        monkeypatch.setattr(worker.device, "_hello", fail)
        assert ask(private, Packet({"kind": "hello"})).header["status"] == "failed"
        # Not even where it is not the device that fails.
        monkeypatch.setattr(worker, "respond", fail)
        with pytest.raises(EOFError):
            ask(private, Packet({"kind": "hello"}))
        monkeypatch.undo()
        assert ask(private, Packet({"kind": "hello"})).header["status"] == "ok"
        assert thread.is_alive()


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    device = make_devices(small(), 0, deep)[0]
    with Worker(device.folder) as worker:
        worker.start()
        address = Path((device.folder.private / ADDRESS).read_text(encoding="utf-8"))
        assert len(str(address)) <= wire.SOCKET_PATH_BYTES
        assert mode(address.parent) == 0o700
        assert ask(device.folder.private, Packet({"kind": "hello"})).header["user"] == 0
    assert not address.parent.exists()


def test_what_devices_download_imports_neither_torch_nor_covey(tmp_path: Path) -> None:
    app = write_app(tmp_path / "app")
    for name in ("client.py", "records.py", "wire.py"):
        tree = ast.parse((app / "covey_app" / name).read_text(encoding="utf-8"))
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
        roots = {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names)
        assert roots <= {"flwr", "numpy"}
    assert 'dependencies = ["flwr"]' in (app / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc")
def test_leftovers_of_a_home_are_ended_and_nothing_else(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(3600)"]
    with ExitStack() as stack:
        names = ("mine", "mine-too", "other")
        mine, *others = [stack.enter_context(started(sleep, env=environment(tmp_path / name))) for name in names]
        end_family(tmp_path / "mine")
        assert mine.exit_code() == -9
        assert all(process.running for process in others)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """A TLS handshake in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(back, there, server_hostname=host), server.wrap_bio(there, back, server_side=True)]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                continue


def test_certificates_are_good_for_their_hosts_and_authority_only(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    make_certificates(mine, ["127.0.0.1", "server.example"], 2)
    make_certificates(other, ["127.0.0.1"], 1)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(mine / "server.crt", mine / "server.key")
    trusting, doubting = (ssl.create_default_context(cafile=folder / "ca.crt") for folder in (mine, other))
    handshake(server, trusting, "127.0.0.1")
    handshake(server, trusting, "server.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, trusting, "elsewhere.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, doubting, "127.0.0.1")
    assert {mode(path) for path in mine.glob("*.key")} == {0o600}
    with pytest.raises(OutputError, match="already holds certificates"):
        make_certificates(mine, ["127.0.0.1"], 1)


def test_the_folder_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no device\.json"):
        DeviceFolder.open(tmp_path)
    make_devices(small(), 0, tmp_path / "site")
    about = tmp_path / "site" / "user-000" / "device.json"
    about.write_text('{"user": 9, "seed": 0, "classes": 10}', encoding="utf-8")
    with pytest.raises(DataError, match="users 0 to 4"):
        DeviceFolder.open(about.parent)
    about.write_text('{"user": "x"}', encoding="utf-8")
    with pytest.raises(DataError, match="is damaged"):
        DeviceFolder.open(about.parent)
