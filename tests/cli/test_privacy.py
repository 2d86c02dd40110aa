"""Budget questions and spent budgets as a user meets them: output, files, exit codes."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from covey.cli.main import main
from covey.privacy import JOURNAL
from covey.scenario import dump_scenario, load_scenario
from covey.simulation import Simulation
from covey.simulation.checkpoint import CHECKPOINT, save_checkpoint, write_results

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Exit code, standard output and standard error of `covey privacy` with these arguments."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["privacy", *map(str, arguments)])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def answer(ask: Ask, *arguments: object) -> dict[str, Any]:
    code, out, err = ask(*arguments, "--json")
    assert code == 0, err
    return json.loads(out, parse_constant=pytest.fail)


def write_run(folder: Path, *settings: str, play: int = 3, results: bool = True) -> Path:
    scenario = load_scenario("quick", settings)
    folder.mkdir(parents=True)
    with Simulation(scenario, "greedy", rounds=5, seed=0) as simulation:
        for _ in range(play):
            simulation.play()
        save_checkpoint(simulation, folder)
        (folder / "scenario.toml").write_text(dump_scenario(scenario), encoding="utf-8")
        if results:
            write_results(simulation.history, folder, {})
    return folder


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize(
    ("arguments", "asked", "value", "words"),
    [
        (["--rounds", 100, "--noise-std", 25], "epsilon", 3.386933, "100 rounds with a noise of 25 on the sum"),
        (["--epsilon", 2, "--noise-std", 25], "rounds", 39, "one more would make it 2.0197"),
        (["--epsilon", 2, "--rounds", 50], "noise_std", 28.196766, "50 rounds at epsilon 2 need a noise of at least"),
        (
            ["--epsilon", 2, "--rounds", 100, "--noise-std", 25],
            "delta",
            0.0040778214,
            "keep epsilon 2 at delta 0.004078",
        ),
        (["--rounds", 100, "--noise-std", 25, "--delta", 1e-7], "epsilon", 4.169966, "at delta 1e-7"),
    ],
)
def test_three_givens_answer_the_fourth(ask: Ask, arguments: list[object], asked: str, value: float, words: str):
    found = answer(ask, *arguments)
    assert found["asked"] == asked
    assert found["answer"] == pytest.approx(value, rel=1e-6)
    assert words in found["sentence"]
    code, out, err = ask(*arguments)
    assert (code, err) == (0, "")
    assert found["paste"].startswith("--set privacy.target_epsilon=") == (asked == "noise_std")
    assert " ".join(out.split()).startswith(f"{found['paste']} {found['sentence']}".strip())
    for text in ("simple", "zcdp", "exact", "Not covered", "one sample of one user", "task identities", "replay"):
        assert text in out


def test_noise_that_is_printed_is_never_too_small(ask: Ask) -> None:
    text = answer(ask, "--epsilon", 2, "--rounds", 50)["sentence"]
    printed = text.split("at least ")[1].split(" ")[0]
    assert answer(ask, "--rounds", 50, "--noise-std", printed)["answer"] <= 2.0


def test_noise_on_the_mean_is_noise_on_the_sum_over_the_samples(ask: Ask) -> None:
    mean = answer(ask, "--epsilon", 2, "--noise-std", 0.05, "--on", "mean", "--samples", 500)
    total = answer(ask, "--epsilon", 2, "--noise-std", 25, "--samples", 500)
    assert mean["answer"] == total["answer"] == 39
    assert "0.05 on the mean gradient of 500 samples (25 on the sum)" in mean["sentence"]
    noise = answer(ask, "--epsilon", 2, "--rounds", 50, "--on", "mean", "--samples", 500)
    assert "0.056394 on the mean gradient" in noise["sentence"]


def test_adjacency_clip_and_method_are_used(ask: Ask) -> None:
    question = ("--rounds", 100, "--noise-std", 25)
    assert answer(ask, *question, "--adjacency", "add_remove")["rho_per_round"] == pytest.approx(0.0008)
    assert answer(ask, *question, "--clip", 2)["rho_per_round"] == pytest.approx(0.0128)
    assert answer(ask, *question, "--method", "simple")["answer"] == pytest.approx(4.1588, abs=1e-4)


def test_announcements_are_added_and_only_zcdp_holds(ask: Ask) -> None:
    question = ("--rounds", 50, "--noise-std", 25, "--announcements", 5)
    found = answer(ask, *question, "--identity-epsilon", 0.4)
    assert found["rho"] == pytest.approx(50 * 0.0032 + 5 * 0.02)
    assert found["method"] == "zcdp"
    assert found["answer_by_method"]["exact"] is None
    assert answer(ask, *question, "--identity-rho", 0.02)["answer"] == pytest.approx(found["answer"])
    _, out, _ = ask(*question, "--identity-rho", 0.02)
    assert "does not hold here" in out
    assert "task identities that are announced as they are" not in out


def test_a_scenario_answers_for_its_worst_user(ask: Ask, run_folder: Path) -> None:
    found = answer(ask, "quick", "--rounds", 3)
    assert "user 9, the smallest, with 62 samples" in found["holds"][0]
    spent = answer(ask, "--run", run_folder)
    assert 0 < spent["epsilon_max"]["exact"] <= found["answer"]
    assert answer(ask, "quick")["rounds"] == load_scenario("quick").training.rounds
    assert answer(ask, "quick", "--epsilon", 10)["asked"] == "rounds"
    other = answer(ask, "quick", "--seed", 1, "--adjacency", "add_remove", "--delta", 1e-6)
    assert (other["samples"], other["adjacency"], other["delta"]) != (found["samples"], "replace_one", 1e-5)
    assert answer(ask, "quick", "--set", "clustering.rule=kmeans")["uploads_per_round"] == 2
    private = answer(ask, "quick", "--set", "privacy.identity=noisy_max", "--set", "clustering.announce_every=5")
    assert (private["method"], private["announcements"], private["identity_rho"]) == ("zcdp", 3, 0.02)


def test_the_advice_for_a_scenario_reaches_the_asked_epsilon(ask: Ask) -> None:
    found = answer(ask, "quick", "--rounds", 50, "--epsilon", 5)
    advice = next(line for line in found["holds"] if "privacy.v_max to" in line)
    v_max = advice.split("privacy.v_max to ")[1].split(" ")[0]
    reached = answer(ask, "quick", "--rounds", 50, "--set", f"privacy.v_max={v_max}")["answer"]
    assert reached == pytest.approx(5.0, abs=1e-3)
    assert reached <= 5.0


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ([], []),
        (["--delta", 1e-6], ["privacy.delta=1e-6"]),
        (["--unit", "device"], ["privacy.unit=device"]),
        (["--adjacency", "add_remove", "--steps", 3], ["privacy.adjacency=add_remove", "training.steps=3"]),
        (
            ["--adjacency", "add_remove", "--sampling-rate", 0.1, "--samples", 155],
            ["privacy.adjacency=add_remove", "training.sampling=poisson", "training.batch=15"],
        ),
        (
            ["--identity-rho", 0.003, "--announcements", 2],
            ["privacy.identity=noisy_max", "privacy.identity_rho=0.003", "clustering.announce_rounds=2"],
        ),
    ],
)
def test_the_line_to_paste_says_all_that_a_run_needs(ask: Ask, given: list[object], more: list[str]) -> None:
    found = answer(ask, "--rounds", 3, "--epsilon", 2.3456789, *given)
    line = ["privacy.target_epsilon=2.3456789", "training.rounds=3", *more]
    assert (shlex.split(found["paste"])[1::2], found["no_paste"]) == (line, "")
    scenario = load_scenario("quick", [*line, "privacy.n_min=1"])
    assert scenario.privacy.target_epsilon == 2.3456789


def test_a_scenario_keeps_what_was_set_in_the_line_to_paste(ask: Ask) -> None:
    changes = ("--set", "privacy.unit=device", "--set", "data.mixes=default", "--set", "privacy.v_max=3000")
    given = ("quick", "--rounds", 3, "--epsilon", 4, "--delta", 1e-6, "--adjacency", "add_remove", *changes)
    assert answer(ask, *given)["paste"] == (
        "--set privacy.unit=device --set data.mixes=default --set privacy.target_epsilon=4 --set training.rounds=3"
        " --set privacy.delta=1e-6 --set privacy.adjacency=add_remove"
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--epsilon", 20000], "'privacy.target_epsilon' is 20000.0, but it should be less than or equal to 10000"),
        (["--epsilon", 0.0005], "'privacy.target_epsilon' is 0.0005, but it should be greater than or equal to 0.001"),
        (["--epsilon", 1, "--steps", 20000], "'training.steps' is 20000, but it should be less"),
        (["--epsilon", 1, "--adjacency", "add_remove", "--sampling-rate", 0.1], "add --samples X"),
        (["--epsilon", 1, "--adjacency", "add_remove", "--sampling-rate", 0.1, "--samples", 9], "less than one sample"),
        (["quick", "--epsilon", 500], "but the floor (11f), privacy.n_min = 100"),
    ],
)
def test_where_no_line_fits_it_says_why(ask: Ask, given: list[object], why: str) -> None:
    found = answer(ask, *given, "--rounds", 3)
    assert found["paste"] == ""
    assert found["no_paste"].startswith("No options of covey run fit this: ")
    assert why in found["no_paste"]
    code, out, _ = ask(*given, "--rounds", 3)
    assert (code, out.split("\n")[0]) == (0, found["no_paste"])


def test_files_and_silence(ask: Ask, tmp_path: Path) -> None:
    arguments = ("quick", "--rounds", 50, "--set", "privacy.budget_epsilon=8", "--out", tmp_path / "budget")
    assert ask(*arguments, "--quiet") == (0, "", "")
    assert {path.name for path in (tmp_path / "budget").iterdir()} == {"privacy.png", "privacy.json"}
    assert (tmp_path / "budget" / "privacy.png").read_bytes().startswith(b"\x89PNG")
    stored = json.loads((tmp_path / "budget" / "privacy.json").read_text())
    assert stored == answer(ask, *arguments)


def test_what_a_run_spent_is_what_its_summary_says(ask: Ask, run_folder: Path, tmp_path: Path) -> None:
    found = answer(ask, "--run", run_folder)
    summary = json.loads((run_folder / "summary.json").read_text())
    assert found["epsilon_max"] == pytest.approx(summary["privacy"]["epsilon_max"])
    assert found["epsilon_mean"] == pytest.approx(summary["privacy"]["epsilon_mean"])
    assert [user["rho"] for user in found["users"]] == [user["rho"] for user in summary["users"]]
    assert sum(user["releases"] for user in found["users"]) == summary["privacy"]["releases"]
    assert "After 3 of 5 rounds" in found["sentence"]
    code, out, _ = ask("--run", run_folder, "--out", tmp_path / "spent")
    assert code == 0
    for text in ("largest", "mean", "refused", "NOT private", "no budget", "task identities"):
        assert text in out
    assert (tmp_path / "spent" / "privacy.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_is_read_from_its_checkpoint_alone_and_left_as_it_was(ask: Ask, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "cut", "privacy.budget_epsilon=4", results=False)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    found = answer(ask, "--run", folder)
    assert {user["budget_epsilon"] for user in found["users"]} == {4.0}
    assert found["epsilon_max"]["zcdp"] <= 4.0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert "nobody has spent anything" in answer(ask, "--run", write_run(tmp_path / "new", play=0))["sentence"]


def test_charges_that_a_crash_kept_from_the_checkpoint_are_counted(ask: Ask, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "crashed", "privacy.noise=secure", results=False)
    before = answer(ask, "--run", folder)
    lines = b'{"round": 3, "kind": "gradient", "users": [3], "rho": [0.5]}\n{"round": 3, "ki'
    (folder / JOURNAL).write_bytes(lines)
    after = answer(ask, "--run", folder)
    assert after["users"][3]["rho"] == pytest.approx(before["users"][3]["rho"] + 0.5)
    assert after["users"][3]["releases"] == before["users"][3]["releases"] + 1
    assert (folder / JOURNAL).read_bytes() == lines  # somebody may still be writing that line
    (folder / JOURNAL).write_bytes(b"not a charge\n")
    code, _, err = ask("--run", folder)
    assert code == 5
    assert f"line 1 of '{folder / JOURNAL}' is damaged" in err


def test_a_run_without_noise_has_no_guarantee(ask: Ask, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "off", "privacy.noise=off")
    found = answer(ask, "--run", folder, "--out", tmp_path / "spent")
    assert found["epsilon_max"]["exact"] == "infinite"
    assert "no guarantee" in found["sentence"]


def test_announcements_of_a_run_leave_the_exact_formula_out(ask: Ask, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "private", "privacy.identity=noisy_max")
    found = answer(ask, "--run", folder, "--out", tmp_path / "spent")
    assert found["method"] == "zcdp"
    assert found["epsilon_max"]["exact"] is None
    assert {user["announcements"] for user in found["users"]} == {2}
    code, _, err = ask("--run", folder, "--method", "exact")
    assert (code, "Gaussian releases alone" in err) == (2, True)


def change_header(source: Path, target: Path, change: Callable[[dict[str, Any]], object]) -> None:
    with safe_open(source / CHECKPOINT, framework="numpy") as file:
        header = json.loads(file.metadata()["covey"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del header["checksum"]
    change(header)
    save_file(arrays, target / CHECKPOINT, metadata={"covey": json.dumps(header)})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run, folder: (folder / CHECKPOINT).unlink(), "holds no run"),
        (lambda run, folder: (folder / CHECKPOINT).write_bytes(b"torn"), "damaged"),
        (lambda run, folder: (folder / "scenario.toml").unlink(), "it has no scenario.toml"),
        (lambda run, folder: (folder / "scenario.toml").write_text("[["), "not valid TOML"),
        (lambda run, folder: change_header(run, folder, lambda h: h["ledger"].update(schema=99)), "schema 99"),
        (lambda run, folder: change_header(run, folder, lambda h: h.pop("ledger")), "damaged"),
        (lambda run, folder: change_header(run, folder, lambda h: h.update(round="three")), "how many rounds"),
    ],
)
def test_a_folder_without_a_whole_run_is_named(
    ask: Ask, run_folder: Path, tmp_path: Path, damage: Callable[[Path, Path], object], words: str
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(run_folder, folder)
    damage(run_folder, folder)
    code, out, err = ask("--run", folder)
    assert (code, out) == (5, "")
    assert words in " ".join(err.split())
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "give three of --rounds, --noise-std, --epsilon and --delta"),
        (["--rounds", 5], 2, "only --rounds was given"),
        (["--rounds", 5, "--delta", 1e-5], 2, "only --rounds and --delta"),
        (["--rounds", 5, "--noise-std", 1, "--epsilon", 1, "--delta", 1e-5], 2, "nothing is left to ask"),
        (["--rounds", 5, "--noise-std", -1], 2, "the noise is -1"),
        (["--rounds", 5, "--noise-std", "nan"], 2, "the noise is nan"),
        (["--rounds", -5, "--noise-std", 1], 2, "number of rounds is -5"),
        (["--rounds", 5, "--noise-std", 1, "--delta", 2], 2, "delta is 2"),
        (["--rounds", 5, "--noise-std", 1, "--clip", 0], 2, "clipping norm is 0"),
        (["--epsilon", 2, "--noise-std", 0.05], 2, "not even one round fits into epsilon 2"),
        (["--epsilon", 2, "--noise-std", 0.05, "--samples", 500], 2, "add --on mean"),
        (["--rounds", 5, "--noise-std", 1, "--on", "mean"], 2, "add --samples"),
        (["--rounds", 5, "--noise-std", 1, "--on", "median"], 2, "one of sum, mean"),
        (["--rounds", 5, "--noise-std", 1, "--samples", 0], 2, "at least 1 sample"),
        (["--rounds", 5, "--noise-std", 1, "--adjacency", "both"], 2, "one of replace_one, add_remove"),
        (["--rounds", 5, "--noise-std", 1, "--method", "best"], 2, "one of exact, zcdp, simple"),
        (["--rounds", 5, "--noise-std", 1, "--announcements", 3], 2, "add --identity-rho"),
        (["--rounds", 5, "--noise-std", 9, "--announcements", 6, "--identity-rho", 0.1], 2, "more announcements (6)"),
        (["--rounds", 5, "--noise-std", 1, "--identity-rho", 0], 2, "above 0"),
        (["--rounds", 5, "--noise-std", 1, "--identity-rho", 1, "--identity-epsilon", 1], 2, "give one of them"),
        (["--rounds", 5, "--noise-std", 9, "--identity-rho", 1, "--method", "exact"], 2, "Gaussian releases alone"),
        (["--rounds", 5, "--noise-std", 1, "--set", "network.users=3"], 2, "needs a SCENARIO"),
        (["--rounds", 5, "--noise-std", 1, "--seed", 3], 2, "needs a SCENARIO"),
        (["--rounds", 5, "--noise-std", 9, "--unit", "device", "--identity-rho", 0.1], 2, "protects one sample, which"),
        (["quick", "--set", "privacy.unit=device", "--identity-rho", 0.1], 2, "protects one sample, which"),
        (["quick", "--clip", 3], 2, "training.clip"),
        (["quick", "--samples", 3], 2, "data.samples_min"),
        (["quick", "--set", "privacy.noise=off"], 2, "no epsilon holds"),
        (["quick", "--set", "privacy.nois=off"], 2, "did you mean"),
        (["nowhere.toml"], 2, "there is no scenario"),
        (["--run", "nowhere"], 5, "there is no folder 'nowhere'"),
        (["--run", "nowhere", "--rounds", 3], 2, "--rounds has no meaning"),
        (["quick", "--run", "nowhere"], 2, "SCENARIO has no meaning"),
        (["--rounds", 5, "--noise-std", 9, "--out", "file/x"], 4, "cannot write"),
    ],
)
def test_bad_input_gets_one_sentence_and_a_code(
    ask: Ask, arguments: list[object], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    found, out, err = ask(*arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"file"}


def test_help_explains_itself(ask: Ask) -> None:
    _, out, _ = ask("--help")
    for word in ("--noise-std", "--announcements", "--run", "Examples", "Exit codes"):
        assert word in out
