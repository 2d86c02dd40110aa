"""Charges come before releases, survive crashes, and stop at budgets."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.processes import run

from covey.cli.main import main
from covey.errors import OutputError
from covey.federated import Engine
from covey.privacy import JOURNAL, Journal, Ledger, epsilon, read_journal
from covey.scenario import load_scenario
from covey.simulation import Simulation, simulate
from covey.simulation.checkpoint import read_checkpoint_header, restore_checkpoint, save_checkpoint

ROUNDS = 4
RUN = ["run", "quick", "--rounds", str(ROUNDS), "--identity", "noisy_max", "--quiet"]

#: Runs commands one after the other, each in a process of its own that ends with SIGKILL in the middle of round 3,
#: when uploads have been computed and may have left. One start of the interpreter does for all of them.
KILLED = """
import json, os, signal, sys
from covey.cli.main import main
from covey.federated import Engine
train = Engine.train
def train_and_die(self, round, *given, **named):
    result = train(self, round, *given, **named)
    if round == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
for arguments in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        Engine.train = train_and_die
        try:
            main(arguments)
        finally:
            os._exit(9)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def spent(folder: Path, first: int = 0) -> np.ndarray:
    """(12,) sums of what the journal holds from its line `first` on."""
    total = np.zeros(12)
    for entry in read_journal(folder / JOURNAL)[first:]:
        np.add.at(total, list(entry.users), entry.rho)
    return total


def finish(folder: Path) -> Ledger:
    """Resume a run to its end; its ledger."""
    with pytest.raises(SystemExit) as end:
        main(["run", "--resume", "--quiet", "--out", str(folder)])
    assert end.value.code == 0
    return Ledger.from_dict(read_checkpoint_header(folder)["ledger"])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `secure` and `replay` of runs that were killed, the first of them again when resumed."""
    base = tmp_path_factory.mktemp("killed")
    commands = [
        [*RUN, "--set", "privacy.noise=secure", "--out", str(base / "secure")],
        ["run", "--resume", "--quiet", "--out", str(base / "secure")],
        [*RUN, "--out", str(base / "replay")],
    ]
    result = run([sys.executable, "-c", KILLED, json.dumps(commands)])
    assert result.stdout.split() == [str(-signal.SIGKILL)] * 3, result.stderr
    return base


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are not what is looked at here, and they take a while."""
    monkeypatch.setattr("covey.report.write_report", lambda *given: None)


def test_charges_are_on_disk_before_anything_is_computed(tmp_path: Path) -> None:
    seen = []
    path = tmp_path / JOURNAL
    with Simulation("quick", rounds=3, journal=Journal(path)) as simulation:
        train = simulation.world.engine.train

        def watch(round: int, users: np.ndarray, *given, **named):
            last = read_journal(path)[-1]
            assert (last.round, last.kind, last.users) == (round, "gradient", tuple(users.tolist()))
            assert min(last.rho) > 0
            # The totals in memory are still those of the round before.
            np.testing.assert_allclose(spent(tmp_path, len(seen)) + simulation.state.ledger.rho, spent(tmp_path))
            seen.append(round)
            return train(round, users, *given, **named)

        simulation.world.engine.train = watch
        while not simulation.done:
            simulation.play()
        np.testing.assert_allclose(spent(tmp_path), simulation.state.ledger.rho)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("overrides", [[], ["clustering.rule=kmeans"], ["privacy.identity=noisy_max"]])
def test_the_journal_holds_every_charge_and_no_other(overrides: list[str], tmp_path: Path) -> None:
    journal = Journal(tmp_path / JOURNAL)
    with Simulation(load_scenario("quick", overrides), rounds=3, journal=journal) as simulation:
        while not simulation.done:
            simulation.play()
        ledger = simulation.state.ledger
    np.testing.assert_allclose(spent(tmp_path), ledger.rho)
    entries = read_journal(tmp_path / JOURNAL)
    for kind, number in (("gradient", ledger.releases), ("identity", ledger.announcements)):
        assert sum(len(entry.users) for entry in entries if entry.kind == kind) == number.sum()


def test_nothing_is_computed_when_the_charge_cannot_be_written(tmp_path: Path) -> None:
    with Simulation("quick", rounds=1, journal=Journal(tmp_path / "gone" / JOURNAL)) as simulation:
        simulation.world.engine.train = lambda *given, **named: pytest.fail("a release was made")
        with pytest.raises(OutputError, match="nothing was sent"):
            simulation.play()
        assert not simulation.state.ledger.rho.any()


def test_a_killed_run_with_secure_noise_is_resumed_without_counting_too_little(killed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(killed / "secure", tmp_path / "secure")
    header = read_checkpoint_header(folder)
    assert header["round"] == 2
    saved, lines = Ledger.from_dict(header["ledger"]), len(read_journal(folder / JOURNAL))
    lost = [entry for entry in read_journal(folder / JOURNAL) if entry.round >= 2]
    assert [entry.kind for entry in lost] == ["identity", "gradient"] * 2
    lost_rho = spent(folder) - saved.rho
    assert (lost_rho >= 2 * 0.02 - 1e-12).all()
    assert (lost_rho > 0.05).any()
    ledger = finish(folder)
    new = spent(folder, lines)
    assert (new >= 2 * 0.02 - 1e-12).all()
    np.testing.assert_allclose(ledger.rho, saved.rho + lost_rho + new)
    np.testing.assert_allclose(ledger.rho, spent(folder))
    # One announcement in every round but the first, and those that were lost.
    assert (ledger.announcements == ROUNDS - 1 + 2).all()
    assert ledger.releases.sum() == sum(len(e.users) for e in read_journal(folder / JOURNAL) if e.kind == "gradient")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["privacy"]["rho_max"] == pytest.approx(spent(folder).max())


def test_a_killed_run_with_seeded_noise_ends_as_if_nothing_had_happened(killed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(killed / "replay", tmp_path / "cut")
    whole = tmp_path / "whole"
    ledger = finish(folder)
    with pytest.raises(SystemExit) as end:
        main([*RUN, "--out", str(whole)])
    assert end.value.code == 0
    for name in ("rounds.csv", "users.csv", "models.safetensors"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert ledger.to_dict() == read_checkpoint_header(whole)["ledger"]
    np.testing.assert_allclose(ledger.rho, spent(whole))
    # The same bytes were sent twice; the journal remembers both times.
    assert (spent(folder) > spent(whole)).all()


@pytest.mark.parametrize(
    "damage",
    [
        b'{"round": 0, "kind": "gradient", "users": [0',
        b"\x00\xff\x00",
        b'{"round": 2, "kind": "gradient", "users": [0], "rho": [-1.0]}',
        b'{"round": 2, "kind": "gradient", "users": [0], "rho": [NaN]}',
    ],
)
def test_a_damaged_journal_is_refused_and_nothing_is_lost(
    damage: bytes, killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(killed / "secure", tmp_path / "run")
    lines = (folder / JOURNAL).read_bytes().split(b"\n")
    (folder / JOURNAL).write_bytes(b"\n".join([lines[0], damage, *lines[1:]]))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(SystemExit) as end:
        main(["run", "--resume", "--out", str(folder)])
    assert end.value.code == 5
    message = " ".join(capsys.readouterr().err.split())
    assert "line 2 of" in message
    assert "what users have spent is not known" in message
    assert message.count("Error") == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("user", [12, -1])
def test_a_journal_that_names_users_who_are_not_there_is_refused(user: int, killed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(killed / "secure", tmp_path / "run")
    Journal(folder / JOURNAL).record(2, "gradient", np.array([user]), np.array([0.5]))
    with pytest.raises(SystemExit) as end:
        main(["run", "--resume", "--quiet", "--out", str(folder)])
    assert end.value.code == 5


def test_a_line_cut_off_by_the_crash_is_no_damage(killed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(killed / "secure", tmp_path / "run")
    whole = spent(folder)
    with open(folder / JOURNAL, "ab") as file:
        file.write(b'{"round": 2, "kind": "gra')
    np.testing.assert_allclose(spent(folder), whole)
    np.testing.assert_allclose(finish(folder).rho, spent(folder))


def failing_once():
    """A transport that breaks down the first time, after uploads were made."""
    calls = []

    def transport(number: int, sent):
        calls.append(number)
        if len(calls) == 1:
            raise ConnectionError("the link is down")
        return sent

    return transport


@pytest.mark.parametrize(("noise", "times"), [("secure", 2), ("replay", 1)])
def test_a_round_played_again_after_an_exception_costs_what_it_released(noise: str, times: int) -> None:
    scenario = load_scenario("quick", [f"privacy.noise={noise}"])
    with Simulation(scenario, rounds=2, transport=failing_once()) as simulation:
        with pytest.raises(ConnectionError):
            simulation.play()
        assert not simulation.history.records
        record = simulation.play()
        assert simulation.state.ledger.releases.sum() == times * record.served
        first = 2 * (simulation.world.clip / np.where(record.users.noise_std > 0, record.users.noise_std, np.inf)) ** 2
        np.testing.assert_allclose(simulation.state.ledger.rho, times * first)
        # The charges of the broken round are not added again later.
        assert simulation.play().served + times * record.served == simulation.state.ledger.releases.sum()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize(("noise", "times"), [("secure", 2), ("replay", 1)])
def test_a_reference_that_fails_leaves_no_release_uncharged(noise: str, times: int, error: type[BaseException]) -> None:
    failures = [error("not now")]

    def reference(data):
        if failures:
            raise failures.pop()
        return np.full(data.users, 0.5)

    with Simulation(load_scenario("quick", [f"privacy.noise={noise}"]), rounds=2, reference=reference) as simulation:
        with pytest.raises(error, match="not now"):
            simulation.play()
        assert simulation.state.round == 0
        assert not simulation.history.records
        record = simulation.play()
        assert simulation.history.ledger.releases.sum() == times * record.served
        assert simulation.play().served + times * record.served == simulation.history.ledger.releases.sum()


def test_a_second_interrupt_while_a_lost_round_is_charged_loses_no_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(*given):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with Simulation(load_scenario("quick", ["privacy.noise=secure"]), transport=failing_once()) as simulation:
        monkeypatch.setattr("covey.simulation.run.charge_lost", again)
        with pytest.raises(KeyboardInterrupt):
            simulation.play()
        record = simulation.play()
        assert simulation.history.ledger.releases.sum() == 2 * record.served


def test_a_journal_of_another_run_is_not_charged_to_this_one() -> None:
    journal, scenario = Journal(), load_scenario("quick", ["privacy.noise=secure"])
    for _ in range(2):
        with Simulation(scenario, rounds=1, journal=journal) as simulation:
            assert simulation.play().served == simulation.state.ledger.releases.sum()


def test_results_of_an_interrupted_run_hold_all_that_may_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Engine.train

    def interrupted(self: Engine, round: int, *given, **named):
        result = train(self, round, *given, **named)
        if round == 2:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Engine, "train", interrupted)
    with pytest.raises(SystemExit) as end:
        main([*RUN, "--set", "privacy.noise=secure", "--out", str(tmp_path / "a")])
    assert end.value.code == 130
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["privacy"]["rho_max"] == pytest.approx(spent(tmp_path / "a").max())


def served(history) -> np.ndarray:
    """(T, U) bool."""
    return history.user_column("station") >= 0


def test_one_budget_for_all_ends_everybodys_releases() -> None:
    history = simulate(load_scenario("paper_digits", ["privacy.budget_epsilon=4"]), rounds=12)
    assert (history.ledger.epsilon("zcdp") <= 4).all()
    refused = history.ledger.refusals > 0
    assert refused.any()
    assert (history.ledger.refusals <= 1).all()  # who was refused once is not asked again
    assert history.column("refused_releases").sum() == refused.sum()
    for user in np.flatnonzero(refused):
        chosen = history.user_column("selected")[:, user] > 0
        last = int(np.flatnonzero(chosen).max())  # the round of the refusal
        assert not served(history)[last:, user].any()
    note = f"Budgets refused releases of {refused.sum()} of 12 users"
    assert any(note in line and "sits out from then on" in line for line in history.notes)
    assert history.summary()["privacy"]["budget_epsilon"] == 4
    assert history.summary()["privacy"]["refusals"] == refused.sum()


def test_a_budget_per_user_stops_that_user_and_no_other() -> None:
    free = simulate("quick", rounds=6)
    user = int(free.ledger.releases.argmax())
    budgets = [100.0] * 12
    budgets[user] = epsilon(2.5 * float(free.user_column("rho")[0, user]), 1e-5, "zcdp")
    assert served(free)[0, user]
    history = simulate(load_scenario("quick", [f"privacy.budget_epsilon={budgets}"]), rounds=6)
    assert history.ledger.refusals.tolist() == [int(other == user) for other in range(12)]
    assert 0 < history.ledger.releases[user] < free.ledger.releases[user]
    assert history.ledger.rho[user] <= history.ledger.budget_rho[user]
    refusal = int(np.flatnonzero(history.column("refused_releases"))[0])
    assert not served(history)[refusal:, user].any()
    assert not (history.user_column("selected")[refusal + 1 :, user]).any()
    assert served(history)[refusal:].any(axis=1).all()
    # Up to the refusal nothing differs from the run without budgets.
    np.testing.assert_array_equal(history.user_column("rho")[:refusal], free.user_column("rho")[:refusal])
    assert any(f"releases of 1 of 12 users (the first is user {user})" in note for note in history.notes)
    assert (history.ledger.epsilon("zcdp") <= budgets).all()


def test_the_noise_of_a_task_is_computed_again_for_those_who_can_pay() -> None:
    budgets = [100.0] * 12
    free = simulate("quick", rounds=1)
    task = free.records[0].users.identity
    members = [np.flatnonzero(served(free)[0] & (task == k)) for k in range(4)]
    group = max(members, key=len)
    budgets[int(group[0])] = 0.01
    history = simulate(load_scenario("quick", [f"privacy.budget_epsilon={budgets}"]), rounds=1)
    rest = group[1:]
    record = history.records[0]
    assert record.refused_releases == 1
    assert record.users.noise_std[group[0]] == 0
    mean = np.average(record.users.noise_std[rest] ** 2, weights=history.samples[rest])
    assert mean == pytest.approx(history.scenario.privacy.v_max)
    expected = 2 * (history.clip[rest] / record.users.noise_std[rest]) ** 2
    np.testing.assert_allclose(history.ledger.rho[rest], expected)


def test_a_resumed_secure_run_does_not_exceed_its_budget_further(tmp_path: Path) -> None:
    scenario = load_scenario("quick", ["privacy.noise=secure", "privacy.budget_epsilon=4"])
    journal = Journal(tmp_path / JOURNAL)
    with Simulation(scenario, rounds=6, journal=journal) as simulation:
        simulation.play()
        save_checkpoint(simulation, tmp_path)
        budget = simulation.state.ledger.budget_rho
    journal.record(1, "gradient", np.array([3]), budget[[3]])  # lost in a crash
    with Simulation(scenario, rounds=6, journal=journal) as simulation:
        restore_checkpoint(simulation, tmp_path)
        before = simulation.state.ledger.rho[3]
        assert before >= budget[3]
        while not simulation.done:
            simulation.play()
        assert simulation.state.ledger.rho[3] == before
        assert (np.delete(simulation.state.ledger.rho, 3) <= np.delete(budget, 3)).all()
