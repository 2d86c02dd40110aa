from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from covey.data.download import UnreachableError, download, file_md5, filling, unpack
from covey.errors import OutputError

CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server:
    """Serves CONTENT on this machine; `drop_after` closes each answer after so many bytes."""

    def __init__(self) -> None:
        self.drop_after: int | None = None
        self.ranges = True
        self.status = 200
        self.asked: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                outer.asked.append(wanted)
                start = int(wanted[6:-1]) if wanted and outer.ranges else 0
                if outer.status != 200 or start >= len(CONTENT):
                    self.send_error(outer.status if outer.status != 200 else 416)
                    return
                body = CONTENT[start:]
                self.send_response(206 if wanted and outer.ranges else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: outer.drop_after])

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/file"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server()
    yield running
    running.close()


def quiet(done: int, total: int | None) -> None:
    pass


def test_a_file_is_downloaded_with_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    download(server.url, tmp_path / "f.part", MD5, lambda done, total: seen.append((done, total)))
    assert (tmp_path / "f.part").read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_part_is_continued(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "f.part"
    part.write_bytes(CONTENT[:1000])
    download(server.url, part, MD5, quiet)
    assert server.asked == ["bytes=1000-"]
    assert part.read_bytes() == CONTENT


def test_a_dropped_connection_is_continued(server: Server, tmp_path: Path) -> None:
    server.drop_after = 300_000
    download(server.url, tmp_path / "f.part", MD5, quiet)
    assert server.asked == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    part = tmp_path / "f.part"
    part.write_bytes(b"something else")
    download(server.url, part, MD5, quiet)
    assert part.read_bytes() == CONTENT


def test_a_complete_part_needs_no_transfer(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "f.part"
    part.write_bytes(CONTENT)
    download(server.url, part, MD5, quiet)
    assert part.read_bytes() == CONTENT


@pytest.mark.parametrize("start", [b"wrong", b"x" * (len(CONTENT) + 5)])
def test_a_wrong_checksum_removes_the_part(server: Server, tmp_path: Path, start: bytes) -> None:
    part = tmp_path / "f.part"
    part.write_bytes(start)
    with pytest.raises(UnreachableError, match=f"not {MD5}"):
        download(server.url, part, MD5, quiet)
    assert not part.exists()


def test_no_progress_ends_the_attempts(server: Server, tmp_path: Path) -> None:
    server.drop_after = 0
    with pytest.raises(UnreachableError, match="closed the connection"):
        download(server.url, tmp_path / "f.part", MD5, quiet)
    assert len(server.asked) == 1


def test_a_refusal_and_a_dead_server_are_unreachable(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(UnreachableError, match="404"):
        download(server.url, tmp_path / "f.part", MD5, quiet)
    server.close()
    with pytest.raises(UnreachableError, match="refused"):
        download(server.url, tmp_path / "f.part", MD5, quiet)


def test_a_part_that_cannot_be_written_is_an_output_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").mkdir()
    with pytest.raises(OutputError, match="--to or COVEY_DATA"):
        download(server.url, tmp_path / "f.part", MD5, quiet)


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_unpack_takes_only_wanted_files_and_only_into_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    source = archive(tmp_path / "a.tgz", {"../../a.bin": b"1234", "deep/b.bin": b"5678", "evil.sh": b"rm"})
    unpack(source, folder, {"a.bin": 4, "b.bin": 4})
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["a.bin", "a.tgz", "b.bin"]
    assert (folder / "a.bin").read_bytes() == b"1234"


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"1234")
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        info = tarfile.TarInfo("a.bin")
        info.type, info.linkname = tarfile.SYMTYPE, str(secret)
        tar.addfile(info)
    with pytest.raises(UnreachableError, match=r"a\.bin is not in it"):
        unpack(tmp_path / "a.tgz", tmp_path, {"a.bin": 4})


@pytest.mark.parametrize(
    ("members", "words"), [({"a.bin": b"12345"}, "5 bytes, not 4"), ({"c.bin": b"1234"}, r"a\.bin is not in it")]
)
def test_unpack_refuses_what_it_did_not_expect(tmp_path: Path, members: dict[str, bytes], words: str) -> None:
    source = archive(tmp_path / "a.tgz", members)
    with pytest.raises(UnreachableError, match=words):
        unpack(source, tmp_path, {"a.bin": 4})


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    source = archive(tmp_path / "a.tgz", {"a.bin": CONTENT})
    source.write_bytes(source.read_bytes()[:200])
    with pytest.raises(UnreachableError, match="cannot be unpacked"):
        unpack(source, tmp_path, {"a.bin": len(CONTENT)})


def test_filling_renames_at_the_end_and_keeps_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "root" / "set"
    with filling(target) as folder:
        (folder / "new").write_text("1")
        assert not target.exists()
    assert (target / "new").read_text() == "1"
    with filling(target) as folder:
        (folder / "newer").write_text("2")
    assert [p.name for p in target.iterdir()] == ["newer"]
    assert (tmp_path / "root" / ".damaged-set-1" / "new").exists()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_filling_leaves_nothing_behind_when_it_fails(tmp_path: Path, error: type[BaseException]) -> None:
    def interrupted() -> None:
        with filling(tmp_path / "set") as folder:
            (folder / "half").write_text("1")
            raise error

    with pytest.raises(error):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_filling_in_a_file_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--to"), filling(tmp_path / "file" / "set"):
        pass


def test_file_md5(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    assert file_md5(tmp_path / "f") == MD5
