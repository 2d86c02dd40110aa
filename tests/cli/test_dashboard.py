"""`covey dashboard` as a user meets it: a real process, what it prints, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from covey.cli.main import main


def covey(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "covey", "dashboard", *arguments], cwd=cwd, capture_output=True, text=True, timeout=300,
        env={**os.environ, "COLUMNS": "120", **environment},
    )  # fmt: skip


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 0)])
def test_it_serves_says_where_and_ends_cleanly(tmp_path: Path, how: signal.Signals, code: int) -> None:
    command = [sys.executable, "-m", "covey", "dashboard", "--port", "0", "--no-open"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"Dashboard of runs: (http://127\.0\.0\.1:\d+/)$", line)
        assert found, line
        assert httpx.get(f"{found[1]}api/entries").json() == []
        process.send_signal(how)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert "Ctrl-C ends it" in errors
    assert (tmp_path / "runs").is_dir()


def test_another_address_gets_a_token(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "covey", "dashboard", ".", "--port", "0", "--host", "0.0.0.0", "--quiet"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        found = re.search(r":(\d+)/login\?token=(\S+)$", process.stdout.readline())
        assert found
        address = f"http://127.0.0.1:{found[1]}"
        assert len(found[2]) >= 32
        assert httpx.get(f"{address}/api/entries").status_code == 401
        with httpx.Client(base_url=address, follow_redirects=True) as client:
            assert client.get(f"/login?token={found[2]}").status_code == 200
            assert client.get("/api/entries").json() == []
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "there is no folder 'nowhere'"),
        (["file"], "there is no folder 'file'"),
        (["run"], "is a run or training itself"),
        ([".", "--token", "short"], "at least 16"),
        ([".", "--host", "no.such.host.invalid"], "is not an address of this machine"),
        ([".", "--host", "203.0.113.7"], "is not an address of this machine"),
        ([".", "--host", "a" * 80], "is not an address of this machine"),
        ([".", "--host", ""], "is not an address of this machine"),
        ([".", "--port", "70000"], "70000"),
        ([".", "--jobs", "-1"], "jobs"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.safetensors").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["dashboard", *arguments])
    assert ended.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_port_in_use_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit) as ended:
            main(["dashboard", "--port", port])
    assert ended.value.code == 2
    assert f"port {port} is in use; choose another with --port" in " ".join(capsys.readouterr().err.split())


def test_help_explains_itself(tmp_path: Path) -> None:
    text = covey("--help", cwd=tmp_path).stdout
    for word in ("--port", "--host", "--token", "--open", "--no-open", "--jobs", "--quiet", "COVEY_TOKEN", "Ctrl-C"):
        assert word in text


def test_other_commands_do_not_load_the_web_server() -> None:
    code = "import sys, covey.cli.main; print({'fastapi', 'uvicorn', 'covey.web'} & sys.modules.keys())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.stdout.strip() == "set()"
