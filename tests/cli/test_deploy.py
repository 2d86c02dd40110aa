"""`covey deploy` as a user meets it: folders, sentences, exit codes; deployments themselves are in tests/deploy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.deploy.near import SMALL

from covey.cli.main import main
from covey.errors import DeployError


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["deploy", *(str(argument) for argument in arguments)])
    return int(ended.value.code or 0)


@pytest.fixture
def with_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Flower were installed; nothing here starts it."""
    for module in ("cli.deploy", "deploy.demo"):
        monkeypatch.setattr(f"covey.{module}.require_extra", lambda *given: None)


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
        (["node", "nowhere", "--node-key", "a.key"], 7, "'a.key' is not there"),
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


@pytest.mark.usefixtures("with_flower")
def test_folders_that_cannot_be_written_get_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    under = tmp_path / "file" / "folder"
    overrides = [part for override in SMALL for part in ("--set", override)]
    assert call("prepare", "quick", "--out", under, *overrides) == 4
    assert call("certificates", "--out", under, "--users", 1) == 4
    assert call("server", "--home", under) == 4
    printed = capsys.readouterr().err
    assert printed.count("cannot write") == 3
    assert "with --home" in printed


@pytest.mark.usefixtures("with_flower")
def test_damaged_and_odd_files_get_a_sentence(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, server = tmp_path / "flower", site / "server"
    home.mkdir()
    (home / "config.toml").write_text("", encoding="utf-8")
    common = ["run", server, "--home", home, "--out", tmp_path / "run"]
    lines = [f"{number},{user},1,1" for number, user in [(1, user) for user in range(5)] + [(1_000_000_000, 0)]]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["round,user,x_m,y_m", *lines]), encoding="utf-8")
    assert call(*common, "--trace", trace) == 3
    assert "names round 1000000000" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "wrong_measure.py").write_text("def measure(:\n", encoding="utf-8")
    (tmp_path / "failing_measure.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for module, kind in (("wrong_measure", "SyntaxError"), ("failing_measure", "ZeroDivisionError")):
        assert call(*common, "--measure", f"{module}:measure") == 2
        assert f"cannot be loaded ({kind}" in " ".join(capsys.readouterr().err.split())
    for content in ("", "[]", "{}", '{"seed": "x"}', '{"seed": -1}'):
        (server / "seed.json").write_text(content, encoding="utf-8")
        assert call(*common) == 3
        assert "is damaged" in capsys.readouterr().err
    assert call("node", site / "user-000", "--budget-epsilon", 0) == 2
    assert "it must be a number above 0" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("with_flower")
@pytest.mark.parametrize(("noise", "warned"), [("replay", True), ("secure", False)])
def test_noise_that_the_server_can_take_off_is_pointed_out(
    noise: str, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("covey.deploy.runs.follow", lambda *given: None)
    overrides = [part for override in [*SMALL, f"privacy.noise={noise}"] for part in ("--set", override)]
    assert call("prepare", "quick", "--out", tmp_path / "site", *overrides) == 0
    home = tmp_path / "flower"
    home.mkdir()
    (home / "config.toml").write_text("", encoding="utf-8")
    run = ["run", "--home", home, "--out", tmp_path / "run"]
    for arguments in ([*run, tmp_path / "site" / "server"], [*run, "--resume"]):
        capsys.readouterr()
        assert call(*arguments) == 0
        assert ("can take all noise off" in " ".join(capsys.readouterr().err.split())) is warned
        assert call(*arguments, "--quiet", *([] if "--resume" in arguments else ["--overwrite"])) == 0
        assert "noise" not in capsys.readouterr().err


@pytest.mark.usefixtures("with_flower")
def test_a_device_whose_worker_ends_says_so(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("covey.deploy.device_process.Worker.serve", lambda worker: None)
    monkeypatch.setattr("covey.deploy.processes.supernode_command", lambda *given: ["sleep", "600"])
    assert call("node", site / "user-000") == 7
    assert "the worker of user 0 ended" in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("with_flower")
def test_the_same_demo_can_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy(*given: object) -> str:
        raise DeployError("no port is free")

    monkeypatch.setattr("covey.deploy.demo.Site.start_superlink", busy)
    for _ in range(2):
        assert call("demo", "--tls", "--out", tmp_path / "run") == 7
        assert "no port is free" in capsys.readouterr().err
    key = tmp_path / "run" / "site" / "certificates" / "user-000.key"
    before = key.read_bytes()
    # What is there is not mixed with another deployment, nor replaced by it.
    assert call("demo", "--tls", "--seed", 1, "--out", tmp_path / "run") == 4
    assert "already holds a deployment" in capsys.readouterr().err
    assert key.read_bytes() == before
    key.with_suffix(".pub").unlink()
    assert call("demo", "--tls", "--out", tmp_path / "run") == 7
    assert "no port is free" in capsys.readouterr().err


def test_a_site_whose_devices_have_run_is_not_replaced(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "server").rename(site.parent / "server")  # as on a machine of its own
    (site / "user-003" / "private").mkdir()
    data = (site / "user-003" / "data.npz").read_bytes()
    overrides = [part for override in SMALL for part in ("--set", override)]
    assert call("prepare", "quick", "--out", site, "--seed", 5, *overrides) == 4
    assert "already holds a deployment" in capsys.readouterr().err
    assert (site / "user-003" / "data.npz").read_bytes() == data


def test_without_flower_the_way_to_get_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    assert call("node", tmp_path) == 2
    assert "covey[flower]" in capsys.readouterr().err
    assert call("demo", "--out", tmp_path / "run") == 2
    assert "covey[flower]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
