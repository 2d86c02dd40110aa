"""A store: found by content and versions, damaged lines unseen, whole lines only, shared by several commands."""

from __future__ import annotations

import json
import math
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.processes import started

from covey.errors import OutputError
from covey.jobs import Record, Store, key_of, made_with, versions_text

NEW, OLD = {"covey": "2"}, {"covey": "1"}


@dataclass(frozen=True)
class Toy:
    """A job of one number."""

    number: int
    label: str = "toy"
    kind: str = "toy"

    @property
    def content(self) -> dict[str, Any]:
        return {"number": self.number}

    @property
    def key(self) -> str:
        return key_of(self.kind, self.content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "below" / "cells.jsonl"


def test_what_is_kept_is_found_again_by_its_content(path: Path) -> None:
    store = Store(path)
    assert not store.has(Toy(1))
    assert not path.parent.exists(), "nothing is made before something is kept"
    values = {"x": 0.1 + 0.2, "many": [1, None, math.inf], "text": "ü"}
    store.keep(Toy(1), values, seconds=1.234)
    for one in (store, Store(path)):
        assert one[Toy(1, label="another name")] == values
        assert not one.has(Toy(2))
        assert not one.has(Toy(1, kind="other"))
    record = Store(path).find(Toy(1))
    assert record is not None
    assert (record.seconds, record.job) == (1.23, {"number": 1})
    with pytest.raises(KeyError, match="toy"):
        store[Toy(2)]


def test_records_of_other_versions_answer_only_when_told(path: Path) -> None:
    Store(path, software=OLD).keep(Toy(1), {"x": "old"})
    assert not Store(path, software=NEW).has(Toy(1))
    assert Store(path, software=NEW).other_version(Toy(1)) is not None
    told = Store(path, software=NEW, any_version=True)
    assert told[Toy(1)] == {"x": "old"}
    Store(path, software=NEW).keep(Toy(1), {"x": "new"})
    Store(path, software=OLD).keep(Toy(1), {"x": "old again"})
    told = Store(path, software=NEW, any_version=True)
    assert told[Toy(1)] == {"x": "new"}, "the present versions come first"
    assert told.other_version(Toy(1)) is None


@pytest.mark.parametrize("harm", [lambda b: b[:-1], lambda b: b[:-30] + b"\n", lambda b: b.replace(b"1", b"2", 1),
                                  lambda b: b"\xff" + b, lambda b: b"{}\n", lambda b: b""])  # fmt: skip
def test_a_damaged_line_is_not_seen_and_harms_no_other(path: Path, harm: Any) -> None:
    Store(path).keep(Toy(1), {"x": 1})
    first = path.read_bytes()
    Store(path).keep(Toy(2), {"x": 2})
    second = path.read_bytes()[len(first) :]
    path.write_bytes(second + harm(first))
    store = Store(path)
    assert not store.has(Toy(1))
    assert store[Toy(2)] == {"x": 2}
    store.keep(Toy(1), {"x": 3})
    assert Store(path)[Toy(1)] == {"x": 3}
    assert Store(path)[Toy(2)] == {"x": 2}


def test_half_a_line_of_a_killed_command_is_left_behind(path: Path) -> None:
    Store(path).keep(Toy(1), {"x": 1})
    with path.open("ab") as file:
        file.write(b'{"kind":"toy","la')
    Store(path).keep(Toy(2), {"x": 2})
    store = Store(path)
    assert (store[Toy(1)], store[Toy(2)]) == ({"x": 1}, {"x": 2})


def test_a_store_sees_what_another_command_kept(path: Path) -> None:
    ours, theirs = Store(path), Store(path)
    theirs.keep(Toy(1), {"x": 1})
    ours.keep(Toy(2), {"x": 2})
    assert ours.has(Toy(1))
    theirs.tidy()  # the file is replaced
    ours.keep(Toy(3), {"x": 3})
    assert {record.values["x"] for record in Store(path).records()} == {1, 2, 3}
    assert len(ours.records()) == 3


def test_several_commands_write_whole_lines(path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom test_store import Store, Toy\n"
        "start = int(sys.argv[2])\nstore = Store(Path(sys.argv[1]))\n"
        "for number in range(start, start + 40):\n    store.keep(Toy(number), {'x': 'long' * 5000})\n"
        "    if number % 10 == 0:\n        store.tidy()\n"
    )
    here = Path(__file__).parent
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(here.parents[1])])
    with ExitStack() as stack:
        commands = [
            stack.enter_context(
                started(
                    [sys.executable, "-c", code, path, str(start)], cwd=here, env={**os.environ, "PYTHONPATH": paths}
                )
            )
            for start in (0, 100, 200)
        ]
        assert [command.exit_code() for command in commands] == [0, 0, 0]
    assert len(Store(path).records()) == 120
    assert all(Record.from_line(line) is not None for line in path.read_bytes().splitlines())


def test_files_are_part_of_a_record_and_changes_are_noticed(path: Path) -> None:
    store = Store(path)
    store.keep(Toy(1), {}, files={"policies/a.bin": b"weights"})
    file = path.parent / "policies" / "a.bin"
    assert file.read_bytes() == b"weights"
    assert store.intact(Toy(1))
    file.write_bytes(b"others.")
    assert not store.intact(Toy(1))
    file.unlink()
    assert not Store(path).intact(Toy(1))
    assert Store(path).has(Toy(1))
    assert not store.intact(Toy(2))


def test_tidying_sorts_and_keeps_one_record_of_each_job(path: Path) -> None:
    for software, number in ((OLD, 10), (OLD, 2), (NEW, 10), (NEW, 1)):
        Store(path, software=software).keep(Toy(number, label=f"seed {number}"), {"x": number})
    store = Store(path, software=NEW)
    store.tidy()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [(line["label"], line["versions"]) for line in lines] == [("seed 1", NEW), ("seed 2", OLD), ("seed 10", NEW)]
    text = path.read_bytes()
    store.tidy()
    assert path.read_bytes() == text
    Store(path.with_name("none.jsonl")).tidy()


def test_versions_are_told_with_numbers_where_they_differ(path: Path) -> None:
    records = [Record("toy", "a", "0", {}, {}, OLD), Record("toy", "b", "1", {}, {}, NEW)]
    assert versions_text(records[:1]) == "covey 1"
    assert versions_text([*records, replace(records[0], key="2")]) == "covey 1 (2 of 3); covey 2 (1 of 3)"
    assert made_with(records) == [{"cells": 1, "versions": OLD}, {"cells": 1, "versions": NEW}]
    assert versions_text([]) == "none"


def test_where_it_was_taken_from_survives(path: Path) -> None:
    record = Record("toy", "a", "0", {}, {"x": 1.5}, OLD, origin="results/elsewhere")
    assert Record.from_line(record.to_line().rstrip()) == record


def test_a_place_that_cannot_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot"):
        Store(tmp_path / "file" / "cells.jsonl").keep(Toy(1), {})


def test_a_replaced_file_with_the_same_inode_and_size_is_read_anew(path: Path) -> None:
    store = Store(path)
    store.keep(Toy(1), {"x": 1})
    Store(path).keep(Toy(2), {"x": 2})
    first, second = path.read_bytes().splitlines(keepends=True)
    assert len(first) == len(second)
    path.write_bytes(second + first)  # as if the sorted file had got the number of the old one
    store.keep(Toy(3), {"x": 3})
    store.tidy()
    assert len(Store(path).records()) == 3
