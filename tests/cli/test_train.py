"""Training, judging and calibrating as a user meets them: real processes, exit codes, files."""

from __future__ import annotations

import csv
import json
import signal
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Covey, environment
from tests.forks import Forks
from tests.processes import Ended, run, started

SMALL = [
    "--epochs", "6", "--learner", "networks=4", "--learner", "updates=4", "--learner", "validation=4",
    "--learner", "validate_every=3",
]  # fmt: skip
FILES = {
    "policy.safetensors", "metrics.csv", "training.png", "summary.json", "scenario.toml", "learner.json", "tensorboard",
    "training.safetensors", "progress.jsonl", "report.html",
}  # fmt: skip


@pytest.fixture(scope="module")
def covey(forks: Forks) -> Covey:
    """As in other tests, with calibrations and policies in the folder itself."""

    def called(*arguments: str, cwd: Path) -> Ended:
        return forks.covey(*arguments, cwd=cwd, env=environment(COVEY_DATA=str(cwd / "data")))

    return called


@pytest.fixture(scope="module")
def place(covey: Covey, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    result = covey("train", "quick", *SMALL, "--out", "whole", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["epochs"] == 6
    return folder


def test_a_training_writes_all_its_results(place: Path) -> None:
    assert {p.name for p in (place / "whole").iterdir()} == FILES
    rows = list(csv.DictReader((place / "whole" / "metrics.csv").open()))
    assert [row["epoch"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert rows[0]["guarded_reward"] == ""
    assert rows[2]["guarded_violators"] == "0.0"
    assert any((place / "whole" / "tensorboard").glob("events*"))


#: Trains with a checkpoint after every epoch and is killed in the fourth, when three are on disk.
KILLED = """
import os, signal
import covey.cli.train_loop as command
from covey.cli.main import main
run_epoch = command.Trainer.run_epoch
def train_and_die(self):
    row = run_epoch(self)
    if self.epoch == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return row
command._CHECKPOINT_S = 0.0
command.Trainer.run_epoch = train_and_die
main()
"""


def test_killed_in_the_middle_and_resumed_ends_the_same_to_the_byte(covey: Covey, place: Path) -> None:
    arguments = ["train", "quick", *SMALL, "--out", "cut", "--quiet"]
    assert run([sys.executable, "-c", KILLED, *arguments], cwd=place, env=environment()).returncode == -signal.SIGKILL
    assert len((place / "cut" / "metrics.csv").read_text().splitlines()) - 1 == 3
    result = covey("train", "--resume", "--out", "cut", "--quiet", cwd=place)
    assert result.returncode == 0, result.stderr
    for name in ("metrics.csv", "policy.safetensors", "learner.json"):
        assert (place / "cut" / name).read_bytes() == (place / "whole" / name).read_bytes()


def test_interrupt_says_how_to_continue(place: Path) -> None:
    command = [sys.executable, "-m", "covey", "train", "quick", *SMALL[2:], "--epochs", "100000", "--out", "stopped"]
    progress = place / "stopped" / "progress.jsonl"
    with started(command, cwd=place, env=environment(COLUMNS="200")) as process:
        process.wait_until(lambda: progress.exists() and '"row"' in progress.read_text())
        process.send(signal.SIGINT)
        assert process.exit_code() == 130, process.stderr
        assert "covey train --resume --out stopped" in process.stderr
    assert any((place / "stopped").glob("tensorboard/events*"))
    assert (place / "stopped" / "policy.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["train", "quick", "--algorithm", "ppo"], 2, "'algorithm' is 'ppo'"),
        (["train", "quick", "--learner", "hiden=8"], 2, "no learner setting 'hiden'"),
        (["train", "quick", "--learner", "discount=2"], 2, "'discount' is '2'"),
        (["train", "quick", "--learner", "hidden"], 2, "not of the form key=value"),
        (["train", "quick", "--learning", "dream"], 2, "either surrogate or real"),
        (["train", "quick", "--set", "training.clip=1"], 2, "no calibration for how scenario 'quick' learns"),
        (["train", "quick", "--head", "subset", "--set", "network.users=40"], 6, "use the additive head"),
        (["train", "quick", "--out", "whole"], 4, "already holds a training"),
        (["train", "--resume", "--out", "nowhere"], 5, "nothing to resume"),
        (["train", "--resume"], 5, "--resume needs the folder"),
        (["train", "--resume", "--out", "whole", "--set", "network.users=9"], 5, "start a new one"),
        (["evaluate", "none.safetensors", "quick"], 6, "there is no policy file"),
        (["evaluate", "qmix", "quick"], 6, "no qmix policy has been trained for scenario 'quick'"),
        (["evaluate", "whole/policy.safetensors", "quick", "--against", "best"], 6, "the policy 'best' is unknown"),
        (["run", "quick", "--policy", "whole/metrics.safetensors"], 6, "there is no policy file"),
        (["calibrate", "quick", "--set", "network.users=3"], 2, "more tasks"),
    ],
)
def test_mistakes_get_one_sentence_and_a_code(
    covey: Covey, place: Path, arguments: list[str], code: int, says: str
) -> None:
    result = covey(*arguments, cwd=place)
    assert result.returncode == code, result.stderr
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_stale_calibration_is_refused(covey: Covey, place: Path) -> None:
    result = covey("calibrate", "quick", "--runs", "2", "--processes", "1", "--set", "training.rounds=3", "--set",
                   "training.clip=3.0", "--out", "c.json", "--json", cwd=place)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["error"]["runs_kept_out"] == 1
    stale = covey("train", "quick", *SMALL, "--calibration", "c.json", "--out", "no", cwd=place)
    assert stale.returncode == 2
    assert "is stale: training.clip differ" in stale.stderr
    # Where it was fitted to how the scenario learns, it is found by itself.
    fits = covey("train", "quick", *SMALL, "--set", "training.clip=3.0", "--out", "own", "--quiet", cwd=place)
    assert fits.returncode == 0, fits.stderr


def test_evaluating_writes_table_json_and_picture(covey: Covey, place: Path) -> None:
    result = covey("evaluate", "whole/policy.safetensors", "quick", "--layouts", "3", "--against", "greedy",
                   "--against", "coverage", "--out", "judged", "--set", "training.rounds=4", cwd=place)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "vs greedy, %" in result.stdout
    files = {"comparison.json", "comparison.csv", "comparison.png", "pieces.jsonl"}
    assert {p.name for p in (place / "judged").iterdir()} == files
    values = json.loads((place / "judged" / "comparison.json").read_text())
    assert set(values["policies"]) == {"greedy", "coverage", "dpvd_alone", "dpvd"}
    assert values["policies"]["dpvd"]["violators_per_episode"]["value"] == 0.0
    assert values["policies"]["dpvd_alone"]["exchanged_bytes_per_decision"] == 0.0


def test_a_run_takes_a_policy_file_and_resumes_with_it(covey: Covey, place: Path) -> None:
    run = ["run", "quick", "--policy", "whole/policy.safetensors", "--rounds", "3", "--quiet"]
    assert covey(*run, "--out", "r1", cwd=place).returncode == 0
    assert (place / "r1" / "policy.safetensors").read_bytes() == (place / "whole" / "policy.safetensors").read_bytes()
    assert covey(*run[:-2], "1", "--quiet", "--out", "r2", cwd=place).returncode == 0
    assert covey("run", "--resume", "--out", "r2", "--rounds", "3", "--quiet", cwd=place).returncode == 0
    assert (place / "r1" / "rounds.csv").read_bytes() == (place / "r2" / "rounds.csv").read_bytes()
    assert "exchanged_bytes_per_decision" in json.loads((place / "r1" / "summary.json").read_text())


def test_a_run_with_a_shipped_policy_needs_no_training(covey: Covey, place: Path) -> None:
    result = covey("run", "quick", "--policy", "dpvd", "--rounds", "2", "--json", "--out", "shipped", cwd=place)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["policy"] == "dpvd"
    assert not (place / "data" / "policies").exists()
