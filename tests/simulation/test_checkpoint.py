from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from covey import files as files_
from covey.errors import OutputError, PartWarning, PolicyError, ResumeError
from covey.privacy import JOURNAL, Journal
from covey.scenario import load_scenario
from covey.simulation import Simulation, checkpoint, simulate
from covey.simulation.record import USER_FIELDS


def files(history, folder) -> dict[str, bytes]:
    folder.mkdir()
    checkpoint.write_results(history, folder, {})
    return {
        name: (folder / name).read_bytes() for name in ("rounds.csv", "users.csv", "models.safetensors", "summary.json")
    }


def test_a_resumed_run_ends_exactly_like_an_uninterrupted_one(quick, quick_history, tmp_path) -> None:
    with Simulation(quick, "greedy", seed=0) as simulation:
        for _ in range(6):
            simulation.play()
        checkpoint.save_checkpoint(simulation, tmp_path)
    with Simulation(quick, "greedy", seed=0) as simulation:
        checkpoint.restore_checkpoint(simulation, tmp_path)
        assert len(simulation.history.records) == 6
        while not simulation.done:
            simulation.play()
        assert files(simulation.history, tmp_path / "a") == files(quick_history, tmp_path / "b")


class Turns:
    """Serves one user per round, in turn."""

    def __init__(self) -> None:
        self.next = 0

    def __call__(self, observation, rng):
        chosen = np.zeros(observation.eligible.shape, dtype=bool)
        user = self.next % chosen.shape[1]
        chosen[observation.eligible[:, user].argmax(), user] = True
        self.next += 1
        return chosen & observation.eligible


class Saved(Turns):
    @property
    def memory(self):
        return {"next": np.array(self.next)}

    def restore(self, memory) -> None:
        self.next = int(memory["next"])


class Worded(Saved):
    @property
    def memory(self):
        return {"next": np.array(str(self.next))}


def resumed(quick, policy, folder, *, rounds: int = 4):
    with Simulation(quick, policy, seed=0, rounds=rounds) as simulation:
        for _ in range(rounds // 2):
            simulation.play()
        checkpoint.save_checkpoint(simulation, folder)
    with Simulation(quick, policy, seed=0, rounds=rounds) as simulation:
        checkpoint.restore_checkpoint(simulation, folder)
        while not simulation.done:
            simulation.play()
        return simulation.history


def test_a_policy_that_offers_its_memory_is_resumed_exactly(quick, tmp_path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PartWarning)
        again = resumed(quick, Saved, tmp_path)
    whole = simulate(quick, Saved, seed=0, rounds=4)
    assert again.user_column("station").tolist() == whole.user_column("station").tolist()
    assert files(again, tmp_path / "a") == files(whole, tmp_path / "b")


def test_a_policy_that_keeps_state_to_itself_is_told_so(quick, tmp_path) -> None:
    with pytest.warns(PartWarning, match=r"policy Turns is an object with attributes, which are not saved.*`restore`"):
        resumed(quick, Turns, tmp_path)


def test_a_memory_that_cannot_be_saved_is_refused(quick, tmp_path) -> None:
    with pytest.raises(PolicyError, match=r"Worded holds 'next' of type <U1.*arrays of numbers"):
        resumed(quick, Worded, tmp_path)


def test_results_are_the_same_bytes_every_time(quick, quick_history, tmp_path) -> None:
    assert files(simulate(quick, "greedy", seed=0, workers=2), tmp_path / "a") == files(quick_history, tmp_path / "b")


def test_tables_hold_every_column_and_exact_values(quick_history, tmp_path) -> None:
    written = files(quick_history, tmp_path / "a")
    rows = list(csv.DictReader(io.StringIO(written["rounds.csv"].decode())))
    assert [int(row["round"]) for row in rows] == list(range(1, 16))
    assert float(rows[-1]["loss"]) == quick_history.records[-1].loss
    users = list(csv.DictReader(io.StringIO(written["users.csv"].decode())))
    assert len(users) == 15 * 12
    assert set(USER_FIELDS) < set(users[0])
    assert float(users[-1]["rho"]) == quick_history.ledger.rho[-1]
    summary = json.loads(written["summary.json"])
    assert summary["complete"] is True
    assert len(summary["users"]) == 12


def test_infinite_and_missing_values_stay_valid_json(tmp_path) -> None:
    history = simulate(load_scenario("quick", ["privacy.noise=off"]), rounds=1)
    summary = json.loads(files(history, tmp_path / "a")["summary.json"], parse_constant=pytest.fail)
    assert summary["privacy"]["rho_max"] == "infinite"


def test_another_scenario_seed_or_policy_is_not_resumed(quick, tmp_path) -> None:
    with Simulation(quick, "greedy", seed=0) as simulation:
        checkpoint.save_checkpoint(simulation, tmp_path)
    for other in (
        (quick, "greedy", 1),
        (quick, "random", 0),
        (load_scenario("quick", ["training.clip=3"]), "greedy", 0),
    ):
        with Simulation(other[0], other[1], seed=other[2]) as simulation, pytest.raises(ResumeError, match="another"):
            checkpoint.restore_checkpoint(simulation, tmp_path)


def test_damaged_and_missing_checkpoints_are_refused(tmp_path) -> None:
    with pytest.raises(ResumeError, match="nothing to resume"):
        checkpoint.read_checkpoint_header(tmp_path)
    (tmp_path / checkpoint.CHECKPOINT).write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}")
    with pytest.raises(ResumeError, match="damaged"):
        checkpoint.read_checkpoint_header(tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two rounds, with its journal."""
    folder = tmp_path_factory.mktemp("saved")
    with Simulation("quick", "greedy", seed=0, journal=Journal(folder / JOURNAL)) as simulation:
        simulation.play()
        simulation.play()
        checkpoint.save_checkpoint(simulation, folder)
    return folder


def restored(folder: Path) -> Simulation:
    with Simulation("quick", "greedy", seed=0, journal=Journal(folder / JOURNAL)) as simulation:
        checkpoint.restore_checkpoint(simulation, folder)
        return simulation


def flipped(content: bytes, places: Iterable[int]) -> Iterator[bytes]:
    for place in places:
        yield content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]


def test_every_flipped_bit_of_a_checkpoint_is_noticed(saved: Path, tmp_path: Path) -> None:
    content = (saved / checkpoint.CHECKPOINT).read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    for damaged in flipped(content, [*range(0, header, 11), *range(header, len(content), 997)]):
        (tmp_path / checkpoint.CHECKPOINT).write_bytes(damaged)
        with pytest.raises(ResumeError, match="is damaged and cannot be resumed"):
            checkpoint.read_checkpoint_header(tmp_path, checked=True)


def without_checksum(folder: Path) -> None:
    """Put the checkpoint back to how earlier versions wrote it."""
    path = folder / checkpoint.CHECKPOINT
    with safe_open(path, framework="numpy") as file:
        arrays, header = {n: file.get_tensor(n) for n in file.keys()}, json.loads(file.metadata()["covey"])  # noqa: SIM118
    del header["checksum"]
    path.write_bytes(save(arrays, metadata={"covey": json.dumps(header)}))


def test_a_checkpoint_without_a_checksum_is_read_and_its_damage_is_one_sentence(saved: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(saved, tmp_path / "old")
    without_checksum(folder)
    with Simulation("quick", "greedy", seed=0, journal=Journal(folder / JOURNAL)) as simulation:
        checkpoint.restore_checkpoint(simulation, folder)
        assert len(simulation.history.records) == 2
        path = folder / checkpoint.CHECKPOINT
        content = path.read_bytes()
        header = content.index(b'"}', content.index(b"task_users"))
        refused = 0
        for damaged in flipped(content, range(8, header, 41)):
            path.write_bytes(damaged)
            with contextlib.suppress(ResumeError):
                checkpoint.restore_checkpoint(simulation, folder)
                continue
            refused += 1
        assert refused > 50


@pytest.mark.parametrize("noise", ["replay", "secure"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.unlink(), "has lost its ledger.jsonl"),
        (lambda path: path.write_bytes(b""), "lacks charges of user"),
        (lambda path: path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:])), "lacks charges"),
        (lambda path: path.write_bytes(path.read_bytes() + b"garbage\n"), "line 3 of"),
        (lambda path: path.write_bytes(path.read_bytes() + b"[" * 100_000 + b"\n"), "line 3 of"),
        (lambda path: path.write_bytes(re.sub(rb'(?<="rho": \[)\d\.', b"0.00", path.read_bytes())), "is not that of"),
        (lambda path: Journal(path).record(0, "gradient", np.array([99]), np.array([1.0])), "names user 99"),
    ],
)
def test_a_journal_that_holds_less_than_the_checkpoint_is_refused(
    change: Callable[[Path], object], words: str, noise: str, tmp_path: Path
) -> None:
    scenario = load_scenario("quick", [f"privacy.noise={noise}"])
    path = tmp_path / JOURNAL
    with Simulation(scenario, journal=Journal(path)) as simulation:
        simulation.play()
        simulation.play()
        checkpoint.save_checkpoint(simulation, tmp_path)
        change(path)
        with pytest.raises(ResumeError, match=words) as error:
            checkpoint.restore_checkpoint(simulation, tmp_path)
    message = str(error.value)
    assert JOURNAL in message
    assert "put the" in message
    assert "start anew in another folder" in message


def test_a_journal_that_holds_more_or_ends_in_a_torn_line_is_resumed(saved: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(saved, tmp_path / "run")
    path = folder / JOURNAL
    path.write_bytes(path.read_bytes() * 2 + b'{"round": 2, "kind": "gra')
    assert restored(folder).state.ledger.to_dict() == restored(saved).state.ledger.to_dict()


def test_a_folder_with_a_run_is_not_overwritten_by_accident(quick, tmp_path) -> None:
    with Simulation(quick, "greedy", seed=0) as simulation:
        checkpoint.save_checkpoint(simulation, tmp_path)
    before = (tmp_path / checkpoint.CHECKPOINT).read_bytes()
    with pytest.raises(OutputError, match="--resume"):
        checkpoint.prepare_folder(tmp_path, overwrite=False)
    assert (tmp_path / checkpoint.CHECKPOINT).read_bytes() == before
    checkpoint.prepare_folder(tmp_path, overwrite=True)


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "may not write")]
)
def test_a_failed_write_keeps_the_old_file_and_says_why(code, words, tmp_path, monkeypatch) -> None:
    target = tmp_path / "summary.json"
    target.write_bytes(b"old")

    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files_.os, "fsync", fail)
    with pytest.raises(OutputError, match=words):
        files_.write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


def test_a_file_in_the_way_is_named(tmp_path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(OutputError, match="taken"):
        checkpoint.prepare_folder(tmp_path / "taken" / "run", overwrite=False)
    assert np.array_equal([p.name for p in tmp_path.iterdir()], ["taken"])
