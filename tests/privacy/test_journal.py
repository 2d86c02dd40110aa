from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from covey.errors import OutputError
from covey.privacy import Journal, Ledger, charge_lost, read_journal


def write_two(path: Path) -> None:
    journal = Journal(path)
    journal.record(0, "gradient", np.array([0, 2]), np.array([0.1, 0.2]))
    journal.record(1, "identity", np.array([2]), np.array([0.05]))


def test_charges_read_back_in_order(tmp_path: Path) -> None:
    write_two(tmp_path / "j")
    first, second = read_journal(tmp_path / "j")
    assert (first.round, first.kind, first.users, first.rho) == (0, "gradient", (0, 2), (0.1, 0.2))
    assert (second.round, second.kind, second.users, second.rho) == (1, "identity", (2,), (0.05,))


def test_what_a_checkpoint_missed_is_added_whatever_the_budget_says(tmp_path: Path) -> None:
    write_two(tmp_path / "j")
    saved = Ledger(3, budget_epsilon=0.1)
    full = charge_lost(saved, read_journal(tmp_path / "j"), 0)
    np.testing.assert_allclose(full.rho, [0.1, 0.0, 0.25])
    assert full.rho.max() > full.budget_rho.max()
    assert not saved.rho.any()
    np.testing.assert_allclose(charge_lost(saved, read_journal(tmp_path / "j"), 1).rho, [0.0, 0.0, 0.05])
    assert not charge_lost(saved, read_journal(tmp_path / "j"), 2).rho.any()


def test_a_line_cut_off_by_a_crash_does_not_count_and_is_not_continued(tmp_path: Path) -> None:
    write_two(tmp_path / "j")
    whole = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(whole + whole[:20])
    assert len(read_journal(tmp_path / "j")) == 2
    Journal(tmp_path / "j").record(2, "gradient", np.array([1]), np.array([1.0]))
    assert [entry.round for entry in read_journal(tmp_path / "j")] == [0, 1, 2]


@pytest.mark.parametrize("damage", [b"{}", b"nonsense", b'{"round": 0, "kind": "gradient", "users": [0], "rho": [-1]}'])
def test_damage_before_the_end_is_refused(tmp_path: Path, damage: bytes) -> None:
    write_two(tmp_path / "j")
    lines = (tmp_path / "j").read_bytes().split(b"\n")
    (tmp_path / "j").write_bytes(b"\n".join([lines[0], damage, *lines[1:]]))
    with pytest.raises(ValueError, match=r"line 2 of .* is damaged"):
        read_journal(tmp_path / "j")


def test_without_a_file_nothing_is_written_or_read(tmp_path: Path) -> None:
    Journal().record(0, "gradient", np.array([0]), np.array([1.0]))
    assert read_journal(tmp_path / "none") == []


def test_a_charge_that_cannot_be_written_stops_the_release(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="nothing was sent"):
        Journal(tmp_path / "no" / "folder").record(0, "gradient", np.array([0]), np.array([1.0]))
