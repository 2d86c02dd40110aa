"""`covey dashboard` as a user meets it: a real process, what it prints, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest
from tests.cli.conftest import Covey
from tests.processes import LIMIT_S, run, started

from covey.cli.main import main


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 0)])
def test_it_serves_says_where_and_ends_cleanly(tmp_path: Path, how: signal.Signals, code: int) -> None:
    command = [sys.executable, "-m", "covey", "dashboard", "--port", "0", "--no-open"]
    with started(command, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        line = process.line()
        found = re.search(r"Dashboard of runs: (http://127\.0\.0\.1:\d+/)$", line)
        assert found, line
        assert httpx.get(f"{found[1]}api/entries", timeout=LIMIT_S).json() == []
        process.send(how)
        assert process.exit_code() == code, process.stderr
        errors = process.stderr
    assert "Traceback" not in errors
    assert "Ctrl-C ends it" in errors
    assert (tmp_path / "runs").is_dir()


def test_another_address_gets_a_token(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "covey", "dashboard", ".", "--port", "0", "--host", "0.0.0.0", "--quiet"]
    with started(command, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        found = re.search(r":(\d+)/login\?token=(\S+)$", process.line())
        assert found
        address = f"http://127.0.0.1:{found[1]}"
        assert len(found[2]) >= 32
        assert httpx.get(f"{address}/api/entries", timeout=LIMIT_S).status_code == 401
        with httpx.Client(base_url=address, follow_redirects=True, timeout=LIMIT_S) as client:
            assert client.get(f"/login?token={found[2]}").status_code == 200
            assert client.get("/api/entries").json() == []
        process.send(signal.SIGINT)
        assert (process.exit_code(), process.stderr) == (0, "")


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
        ([".", "--port", "70000"], "65535"),
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


def test_help_explains_itself(covey: Covey, tmp_path: Path) -> None:
    text = covey("dashboard", "--help", cwd=tmp_path).stdout
    for word in ("--port", "--host", "--token", "--open", "--no-open", "--jobs", "--quiet", "COVEY_TOKEN", "Ctrl-C"):
        assert word in text


def test_other_commands_do_not_load_the_web_server() -> None:
    code = "import sys, covey.cli.main; print({'fastapi', 'uvicorn', 'covey.dashboard'} & sys.modules.keys())"
    result = run([sys.executable, "-c", code])
    assert result.stdout.strip() == "set()"
