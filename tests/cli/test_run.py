"""The command as a user meets it: a real process, its exit code, its output and its files."""

from __future__ import annotations

import csv
import json
import signal
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from tests.cli.conftest import Covey, covey_started, environment
from tests.processes import started

from covey.cli.main import main
from covey.simulation import Simulation

RESULTS = {
    "summary.json", "rounds.csv", "users.csv", "scenario.toml", "models.safetensors", "checkpoint.safetensors",
    "map.png", "curves.png", "blocks.png", "report.html", "ledger.jsonl", "progress.jsonl",
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    result = covey_started("run", "quick", "--out", "full", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "NOT private" in result.stdout
    assert "epsilon" in result.stdout.lower()
    return folder / "full"


def test_a_run_writes_all_its_results(finished: Path) -> None:
    assert {p.name for p in finished.iterdir()} == RESULTS
    page = (finished / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_interrupt_keeps_a_usable_result_and_resume_ends_the_same(covey: Covey, tmp_path: Path) -> None:
    # So many rounds that it cannot end before it is interrupted, however late that is.
    command = [sys.executable, "-m", "covey", "run", "quick", "--out", "cut", "--rounds", "100000"]
    with started(command, cwd=tmp_path, env=environment()) as process:
        process.wait_until((tmp_path / "cut" / "checkpoint.safetensors").exists)
        process.send(signal.SIGINT)
        assert process.exit_code() == 130, process.stderr
        errors = process.stderr
    assert "Traceback" not in errors
    assert "covey run --resume --out cut" in " ".join(errors.split())
    summary = json.loads((tmp_path / "cut" / "summary.json").read_text())
    assert summary["complete"] is False
    # The journal begins with the first charge, which may not have been reached.
    assert {p.name for p in (tmp_path / "cut").iterdir()} | {"ledger.jsonl"} == RESULTS
    rounds = str(summary["rounds"] + 3)
    assert covey("run", "--resume", "--rounds", rounds, "--out", "cut", "-q", cwd=tmp_path).returncode == 0
    assert covey("run", "quick", "--rounds", rounds, "--out", "whole", "-q", cwd=tmp_path).returncode == 0
    for name in ("rounds.csv", "users.csv", "models.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_run_can_be_extended(covey: Covey, finished: Path, tmp_path: Path) -> None:
    assert covey("run", "quick", "--rounds", "3", "--out", "a", "-q", cwd=tmp_path).returncode == 0
    assert covey("run", "--resume", "--rounds", "15", "--out", "a", "-q", cwd=tmp_path).returncode == 0
    assert (tmp_path / "a" / "rounds.csv").read_bytes() == (finished / "rounds.csv").read_bytes()


@pytest.mark.parametrize(("tasks", "used"), [(2, 2), (8, None)])
def test_more_and_fewer_models_than_groups(covey: Covey, tasks: int, used: int | None, tmp_path: Path) -> None:
    start = ("run", "quick", "--set", f"network.tasks={tasks}", "--out", "a")
    result = covey(*start, "--rounds", "2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "nan" not in result.stdout.lower()
    whole = covey(*start[:-1], "b", "--rounds", "4", "-q", cwd=tmp_path)
    assert whole.returncode == 0
    assert covey("run", "--resume", "--rounds", "4", "--out", "a", "-q", cwd=tmp_path).returncode == 0
    for name in ("rounds.csv", "users.csv", "models.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    for name in ("report.html", "map.png", "curves.png", "blocks.png"):
        assert (tmp_path / "a" / name).stat().st_size > 500
    groups = json.loads((tmp_path / "a" / "summary.json").read_text())["groups"]
    assert (groups["groups"], groups["tasks"]) == (4, tasks)
    assert groups["tasks_used"] == tasks - len(groups["unused_tasks"])
    assert used is None or groups["tasks_used"] == used
    rounds = (tmp_path / "a" / "rounds.csv").read_text().splitlines()[0].split(",")
    assert [name for name in rounds if name.startswith("group_loss_")] == [f"group_loss_{g}" for g in range(4)]
    assert len([name for name in rounds if name.startswith("task_loss_")]) == tasks


def test_json_is_the_only_thing_on_stdout_and_quiet_says_nothing(covey: Covey, tmp_path: Path) -> None:
    result = covey("run", "quick", "--rounds", "1", "--json", "--out", "a", cwd=tmp_path)
    assert json.loads(result.stdout)["rounds"] == 1
    result = covey("run", "quick", "--rounds", "1", "--quiet", "--out", "b", cwd=tmp_path)
    assert (result.stdout, result.stderr) == ("", "")


def test_default_folders_never_collide(covey: Covey, tmp_path: Path) -> None:
    for _ in range(2):
        assert covey("run", "quick", "--rounds", "1", "-q", cwd=tmp_path).returncode == 0
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"quick-greedy-seed0", "quick-greedy-seed0-2"}


def test_help_explains_itself(covey: Covey, tmp_path: Path) -> None:
    text = covey("run", "--help", cwd=tmp_path).stdout
    for word in ("--policy", "--resume", "--set", "Examples", "report.html", "Exit codes", "130"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "missing.toml"], 2, "there is no scenario 'missing.toml'"),
        (["run", "quick", "--set", "network.userss=3"], 2, "did you mean 'users'"),
        (["run", "quick", "--set", "privacy.v_max=-3"], 2, "greater than 0"),
        (["run", "quick", "--set", "network.task_sets=[[0],[0],[0],[0]]"], 2, "no station can run task 1"),
        (["run", "quick", "--set", "network.tasks=13"], 2, "more tasks (13) than users (12)"),
        (
            ["run", "quick", "--set", "network.tasks=2", "--set", "clustering.rule=oracle"],
            2,
            "raise network.tasks to 4",
        ),
        (["run", "quick", "--set", "data.groups=3"], 2, "mixes has 4 entries, but there are 3 groups"),
        (["run", "quick", "--set", "data.group_sizes=[7,3,1,2]"], 2, "adds up to 13 users"),
        (["run", "quick", "--set", "data.rotations=[0,9,18,27]"], 3, "does not turn images"),
        (["run", "quick", "--set", "privacy.n_min=1e6"], 2, "infeasible"),
        (["run", "quick", "--policy", "best"], 6, "local_search"),
        (["run", "quick", "--seed", "-1"], 2, "seed"),
        (["run", "quick", "--set", "data.samples_max=5000"], 3, "samples_max"),
        (["run", "paper", "--set", "data.path=nowhere"], 3, "covey data fetch cifar10"),
        (["run", "--resume"], 5, "--out"),
        (["run", "--resume", "--out", "empty"], 5, "nothing to resume"),
        (["run", "quick", "--out", "file/run"], 4, "cannot write"),
        (["run", "quick", "--out", ""], 2, "--out is empty"),
        (["privacy", "quick", "--out="], 2, "--out is empty"),
        (["run", "quick", "--rounds", "9" * 20], 2, "at most 1000000000"),
        (["run", "quick", "--set", "network.stations=1000000000"], 2, "less than or equal to 1000000"),
        (["run", "quick", "--set", "data.samples_max=1000000000"], 3, "lower data.samples_max to at most"),
        (["run", "quick", "--set", "network=3"], 2, "it is a section"),
        (["unknown"], 2, "unknown"),
    ],
)
def test_bad_input_gets_one_sentence_and_a_code(
    covey: Covey, arguments: list[str], code: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    result = covey(*arguments, cwd=tmp_path, COVEY_DATA=str(tmp_path))
    assert result.returncode == code, result.stderr
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"file"}


def test_an_unknown_key_in_a_file(covey: Covey, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[network]\nuser = 3\n")
    result = covey("run", "own.toml", cwd=tmp_path)
    assert result.returncode == 2
    assert "unknown key 'network.user'" in result.stderr


def test_an_existing_run_is_refused_and_untouched(covey: Covey, finished: Path) -> None:
    before = {p.name: p.read_bytes() for p in finished.iterdir()}
    result = covey("run", "quick", "--out", str(finished), cwd=finished.parent)
    assert result.returncode == 4
    assert "--resume" in result.stderr
    assert {p.name: p.read_bytes() for p in finished.iterdir()} == before


def test_rounds_csv_is_byte_identical_at_one_and_two_workers(covey: Covey, finished: Path, tmp_path: Path) -> None:
    assert covey("run", "quick", "--workers", "2", "--out", "two", "-q", cwd=tmp_path).returncode == 0
    assert (tmp_path / "two" / "rounds.csv").read_bytes() == (finished / "rounds.csv").read_bytes()
    rows = list(csv.DictReader((finished / "rounds.csv").open()))
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])


def test_a_truncated_batch_is_named(covey: Covey, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        (folder / name).write_bytes(b"\0" * 3073)
    result = covey("run", "paper", "--out", "run", cwd=tmp_path, COVEY_DATA=str(tmp_path))
    assert result.returncode == 3
    assert "data_batch_1.bin has 3,073 bytes" in result.stderr
    assert not (tmp_path / "run").exists()


def here(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code and output of a command run in this process, which spares the start of another."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, " ".join(printed.err.split())


def test_what_is_not_protected_stands_before_all_results(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    assert page.index("Identities are NOT protected") < page.index("<h1>") < page.index("Largest epsilon")
    assert "Identities are NOT protected" in json.loads((finished / "summary.json").read_text())["notes"][1]


def test_masks_and_private_identities_by_their_short_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a"
    code, out, err = here(
        capsys,
        "run",
        "quick",
        "--rounds",
        2,
        "--security",
        "masked",
        "--identity",
        "noisy_max",
        "--json",
        "--out",
        folder,
    )
    assert code == 0, err
    summary = json.loads(out)
    assert (summary["privacy"]["security"], summary["privacy"]["identity"]) == ("masked", "noisy_max")
    assert summary["privacy"]["announcements"] == 12
    assert summary["privacy"]["unprotected_announcements"] == 0
    assert summary["totals"]["protocol_bytes"] > 0
    assert min(summary["security_milliseconds"].values()) >= 0
    assert {path.name for path in folder.iterdir()} == RESULTS
    written = (folder / "scenario.toml").read_text()
    assert 'mode = "masked"' in written
    assert 'identity = "noisy_max"' in written
    page = (folder / "report.html").read_text()
    assert page.index("Uploads were masked") < page.index("<h1>")
    assert "Identities are NOT protected" not in page
    kinds = [json.loads(line)["kind"] for line in (folder / "ledger.jsonl").read_text().splitlines()]
    assert kinds == ["gradient", "identity", "gradient"]
    # What a run is cannot be changed while it goes on.
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for option in (["--security", "none"], ["--identity", "raw"], ["--security", "masked"]):
        code, _, err = here(capsys, "run", "--resume", "--rounds", 3, "--out", folder, *option)
        assert code == 5
        assert "cannot change a run that is being resumed" in err
        assert err.count("Error") == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--security", "maskd"], "'none', 'masked' or 'blind'"),
        (["--security", ""], "'none', 'masked' or 'blind'"),
        (["--security", "default"], "'none', 'masked' or 'blind'"),
        (["--identity", "private"], "choose one of raw, noisy_max, noisy_losses, noisy_contrasts, from_release"),
        (["--identity", "noisy_max", "--set", "privacy.noise=off"], "privacy.noise is 'off'"),
        (["--identity", "from_release", "--set", "clustering.rule=kmeans"], "clustering.rule = 'kmeans'"),
        (["--security", "masked", "--set", "clustering.rule=kmeans"], "clustering.rule is 'kmeans'"),
        (["--security", "masked", "--policy", "dpvd"], "use a reference policy"),
        (["--set", "security.minimum=1"], "greater than or equal to 2"),
        (["--set", "security.threshold=0.5"], "greater than 0.5"),
        (["--set", "radio.loss_probability=1"], "less than 1"),
        (["--set", "privacy.budget_epsilon=[1.0, 2.0]"], "2 numbers for 12 users"),
        (["--set", "privacy.identity_rho=0"], "greater than 0"),
        (["--set", "clustering.announce_every=0"], "greater than or equal to 1"),
    ],
)
def test_wrong_privacy_settings_get_one_sentence(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = here(capsys, "run", "quick", *arguments)
    assert code == 2, err
    assert words in err
    assert (out, err.count("Error")) == ("", 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--security", "--identity"])
def test_the_short_options_explain_themselves(
    option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = here(capsys, "run", "--help")
    assert code == 0
    assert option in out


def test_a_central_model_can_be_asked_for_and_added_to_a_finished_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "data"))
    without, asked, folder = ("--no-reference", "-q"), ("--reference", "-q"), tmp_path / "a"
    assert here(capsys, "run", "quick", "--rounds", 2, "--out", folder, *without)[0] == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["final"]["central"] is None
    assert summary["final"]["majority"] > 0
    assert not (tmp_path / "data").exists()
    assert here(capsys, "run", "--resume", "--out", folder, *asked)[0] == 0
    assert (tmp_path / "data" / "central.jsonl").is_file()
    assert here(capsys, "run", "quick", "--rounds", 2, "--out", tmp_path / "b", *asked)[0] == 0
    for name in ("rounds.csv", "users.csv", "models.safetensors"):
        assert (folder / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    rows = list(csv.DictReader((folder / "rounds.csv").open()))
    assert all(float(row["central"]) > 0.9 > float(row["majority"]) for row in rows)
    lines = (folder / "progress.jsonl").read_text().splitlines()
    shown = [json.loads(line) for line in lines if '"row"' in line][-2:]
    assert [event["row"]["central"] > 0.9 for event in shown] == [True, True]
    # It goes on with what it began, without being asked again.
    assert here(capsys, "run", "--resume", "--rounds", 3, "--out", folder, "-q")[0] == 0
    rows = list(csv.DictReader((folder / "rounds.csv").open()))
    assert len({row["central"] for row in rows}) == 1 < len(rows)


def interrupt(simulation: Simulation) -> NoReturn:
    """As Ctrl-C in the first moment of a round."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(("choice", "compared"), [("--no-reference", False), ("--reference", True)])
def test_a_resumed_run_compares_with_a_central_model_as_it_was_told(
    choice: str,
    compared: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("covey.evaluation.central.CHEAP", 0 if compared else 10**12)
    play = ("run", "quick", choice, "-q", "--out")
    assert here(capsys, *play, tmp_path / "whole", "--rounds", 2)[0] == 0
    table = tmp_path / "cut" / "rounds.csv"
    with monkeypatch.context() as interrupted:  # before round 1, when no column says what was chosen
        interrupted.setattr("covey.cli.run_loop.Simulation.play", interrupt)
        code, _, err = here(capsys, *play[:-2], "--out", tmp_path / "cut", "--rounds", 2)
        assert (code, "continue with: covey run --resume --out" in err) == (130, True)
    assert here(capsys, "run", "--resume", "--out", tmp_path / "cut", "-q")[0] == 0
    for name in ("rounds.csv", "users.csv", "models.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert {row["central"] != "" for row in csv.DictReader(table.open())} == {compared}
    if not compared:  # until it is told otherwise, which it keeps in turn
        assert here(capsys, "run", "--resume", "--reference", "--out", tmp_path / "cut", "-q")[0] == 0
        assert {row["central"] != "" for row in csv.DictReader(table.open())} == {True}
        assert json.loads((tmp_path / "cut" / "reference.json").read_text()) == {"reference": True}
    # A new run in the same folder begins without a choice.
    (tmp_path / "cut" / "reference.json").write_text("{}")
    assert here(capsys, "run", "--resume", "--out", tmp_path / "cut")[0] == 5
    assert here(capsys, "run", "quick", "--rounds", 1, "--overwrite", "--out", tmp_path / "cut", "-q")[0] == 0
    assert not (tmp_path / "cut" / "reference.json").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["campus"], "which is not that of 'campus'"),
        (["--policy", "random"], "--policy is random, but the run in"),
        (["--seed", "1"], "--seed is 1, but the run in"),
        (["--overwrite"], "leave out one of the two"),
    ],
)
def test_a_resumed_run_is_not_changed_and_may_be_named_again(
    given: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play = ("run", "quick", "--policy", "nearest", "--seed", "3", "--no-reference", "--out", tmp_path / "a", "-q")
    assert here(capsys, *play, "--rounds", 1)[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    code, _, err = here(capsys, "run", "--resume", "--rounds", 2, "--out", tmp_path / "a", *given)
    assert (code, words in err) == (5, True), err
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before
    assert here(capsys, *play, "--rounds", 2, "--resume")[0] == 0
