"""`covey deploy` as a user meets it: folders, sentences, exit codes; deployments themselves are in tests/deploy."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from tests.deploy.near import SMALL

from covey.cli.main import main


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["deploy", *(str(argument) for argument in arguments)])
    return int(ended.value.code or 0)


@pytest.fixture
def with_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Flower were installed; nothing here starts it."""
    monkeypatch.setattr("covey.deploy.processes.require_flower", lambda: None)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    overrides = [part for override in SMALL for part in ("--set", override)]
    assert call("prepare", "quick", "--out", tmp_path / "site", *overrides) == 0
    return tmp_path / "site"


def test_prepare_writes_a_folder_for_every_device_and_the_server(site: Path) -> None:
    assert sorted(path.name for path in site.iterdir()) == ["server", *(f"user-{user:03d}" for user in range(5))]
    for user in range(5):
        names = {path.name for path in (site / f"user-{user:03d}").iterdir()}
        assert names == {"data.npz", "device.json", "scenario.toml"}
    assert {path.name for path in (site / "server").iterdir()} == {"scenario.toml", "seed.json", "groups.csv"}


def test_certificates_are_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("certificates", "--out", tmp_path / "keys", "--users", 2) == 0
    assert call("certificates", "--out", tmp_path / "keys", "--users", 2) == 4
    assert "already holds certificates" in capsys.readouterr().err


@pytest.mark.usefixtures("with_flower")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["node", "nowhere"], 3, "is no device folder"),
        (["node", "nowhere", "--ca", "nothing.crt"], 7, "is not there"),
        (["run", "nowhere"], 7, "is no folder of a SuperLink"),
        (["run", "--resume"], 7, "is no folder of a SuperLink"),
        (["server", "--ca", "nothing.crt"], 7, "TLS needs --ca, --certificate and --key"),
        (["server", "--node-key", "a.pub"], 7, "--node-key needs TLS"),
        (["demo", "--set", "network.users=0"], 2, "network.users"),
        (["demo", "--security", "blind"], 7, "use 'none' or 'masked'"),
    ],
)
def test_mistakes_get_a_sentence(
    arguments: list[str], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert call(*arguments) == code
    printed = " ".join(capsys.readouterr().err.split())
    assert words in printed
    assert "Traceback" not in printed


@pytest.mark.usefixtures("with_flower")
def test_run_needs_a_prepared_folder_and_resume_a_run(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "flower"
    home.mkdir()
    (home / "config.toml").write_text("", encoding="utf-8")
    assert call("run", "--home", home) == 7
    assert call("run", "--home", home, "--resume") == 5
    assert call("run", "--home", home, "--resume", "--out", tmp_path / "run", "--policy", "random") == 5
    assert call("run", site / "server", "--home", home, "--trace", tmp_path / "no.csv", "--out", tmp_path / "run") == 3
    assert call("run", site / "server", "--home", home, "--groups", tmp_path / "no.csv", "--out", tmp_path / "run") == 3
    assert call("run", site / "server", "--home", home, "--measure", "nothing", "--out", tmp_path / "run") == 2
    assert not (tmp_path / "run").exists()
    assert call("run", "--home", home, "--resume", "--out", tmp_path / "nothing") == 5
    assert call("run", site / "server", "--home", home, "--policy", "nobody", "--out", tmp_path / "run") == 6
    printed = capsys.readouterr().err
    assert "covey deploy run site/server" in printed
    assert "--out FOLDER" in printed


def test_without_flower_the_way_to_get_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("covey.deploy.processes.metadata.version", missing)
    assert call("node", tmp_path) == 7
    assert "covey[flower]" in capsys.readouterr().err
